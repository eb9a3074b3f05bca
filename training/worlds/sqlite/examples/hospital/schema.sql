CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), today TEXT NOT NULL);
CREATE TABLE patients (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, born_on TEXT NOT NULL, isolation INTEGER NOT NULL CHECK (isolation IN (0, 1)));
CREATE TABLE beds (
  id TEXT NOT NULL PRIMARY KEY, ward TEXT NOT NULL, single_room INTEGER NOT NULL CHECK (single_room IN (0, 1)),
  state TEXT NOT NULL CHECK (state IN ('free', 'taken', 'to_clean')), patient_id TEXT UNIQUE REFERENCES patients (id),
  CHECK ((state = 'taken') = (patient_id IS NOT NULL))
);
CREATE TABLE doctors (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, specialty TEXT NOT NULL, opens TEXT NOT NULL, closes TEXT NOT NULL);
CREATE TABLE appointments (
  doctor_id TEXT NOT NULL REFERENCES doctors (id), starts_at TEXT NOT NULL, patient_id TEXT NOT NULL REFERENCES patients (id),
  reason TEXT NOT NULL, PRIMARY KEY (doctor_id, starts_at), UNIQUE (patient_id, starts_at)
);
CREATE TABLE moves (id INTEGER PRIMARY KEY AUTOINCREMENT, patient_id TEXT NOT NULL, from_bed TEXT, to_bed TEXT);
CREATE TRIGGER move_is_logged AFTER UPDATE OF patient_id ON beds WHEN new.patient_id IS NOT old.patient_id
BEGIN
  INSERT INTO moves (patient_id, from_bed, to_bed)
  SELECT coalesce(new.patient_id, old.patient_id), CASE WHEN new.patient_id IS NULL THEN old.id END, CASE WHEN new.patient_id IS NOT NULL THEN new.id END;
END;
