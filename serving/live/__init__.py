"""Live translation: speakers whose words arrive while they speak. Imports `translation`, and layers below it."""
