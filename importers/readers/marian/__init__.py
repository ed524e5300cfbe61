"""What reads the files of Marian, and of the students of Firefox. Imports what the other readers import."""
