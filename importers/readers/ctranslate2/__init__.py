"""What reads the folders of CTranslate2. Imports what the other readers import."""
