INSERT INTO clock VALUES (1, '2026-05-11');
INSERT INTO patients VALUES
  ('P-01', 'Ines Moreau', '1958-02-11', 0), ('P-02', 'Jonas Weber', '1990-07-30', 0), ('P-03', 'Kofi Mensah', '1975-12-01', 1),
  ('P-04', 'Lena Novak', '2001-03-19', 0), ('P-05', 'Mei Tanaka', '1983-09-05', 0), ('P-06', 'Nils Berg', '1949-06-23', 0);
INSERT INTO beds VALUES
  ('A1', 'surgery', 0, 'taken', 'P-01'), ('A2', 'surgery', 0, 'free', NULL), ('A3', 'surgery', 1, 'to_clean', NULL),
  ('B1', 'medicine', 0, 'taken', 'P-02'), ('B2', 'medicine', 1, 'free', NULL), ('B3', 'medicine', 0, 'free', NULL), ('B4', 'medicine', 0, 'taken', 'P-06');
INSERT INTO doctors VALUES
  ('D-1', 'Dr Okoye', 'cardiology', '09:00', '12:00'), ('D-2', 'Dr Sato', 'cardiology', '13:00', '16:00'), ('D-3', 'Dr Varga', 'orthopaedics', '09:00', '15:00');
INSERT INTO appointments VALUES
  ('D-1', '2026-05-12 09:00', 'P-02', 'chest pain'), ('D-1', '2026-05-12 09:30', 'P-05', 'check-up'), ('D-1', '2026-05-12 10:30', 'P-06', 'check-up'),
  ('D-2', '2026-05-12 13:00', 'P-04', 'palpitations'), ('D-3', '2026-05-12 09:30', 'P-04', 'knee'), ('D-3', '2026-05-13 11:00', 'P-05', 'back');
