"""`lingon bench attention`: systems with and without attention, compared. Imports anything below it in bench."""
