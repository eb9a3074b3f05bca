INSERT INTO clock VALUES (1, '2026-03-20');
INSERT INTO customers VALUES
  ('C-1', 'Ada Lindqvist', 'ada@example.org', 0), ('C-2', 'Ben Okafor', 'ben@example.org', 1500),
  ('C-3', 'Chen Rui', 'chen@example.org', 0), ('C-4', 'Dora Petrova', 'dora@example.org', 250);
INSERT INTO products VALUES
  ('KET-1', 'Kettle, 1 l', 'kitchen', 3900, 12), ('KET-2', 'Kettle, 2 l', 'kitchen', 4900, 0), ('KET-3', 'Kettle, 2 l, steel', 'kitchen', 6400, 5),
  ('PAN-1', 'Frying pan', 'kitchen', 2900, 20), ('LMP-1', 'Desk lamp', 'light', 3400, 7), ('LMP-2', 'Floor lamp', 'light', 8900, 2),
  ('BLB-1', 'Bulb, warm white', 'light', 450, 200), ('RUG-1', 'Wool rug', 'textile', 15900, 1);
INSERT INTO orders VALUES
  ('O-101', 'C-1', '4 Mill Lane, York', 'delivered', '2026-02-26', '2026-03-03'),
  ('O-102', 'C-1', '4 Mill Lane, York', 'placed', '2026-03-18', NULL),
  ('O-103', 'C-2', '9 Quay Street, Bristol', 'delivered', '2026-01-29', '2026-02-03'),
  ('O-104', 'C-2', '9 Quay Street, Bristol', 'delivered', '2026-02-14', '2026-02-18'),
  ('O-105', 'C-3', '1 Castle Rise, Leeds', 'shipped', '2026-03-15', NULL),
  ('O-106', 'C-3', '1 Castle Rise, Leeds', 'placed', '2026-03-19', NULL),
  ('O-107', 'C-4', '30 Elm Road, Bath', 'placed', '2026-03-20', NULL),
  ('O-108', 'C-3', '1 Castle Rise, Leeds', 'placed', '2026-03-20', NULL);
INSERT INTO order_items VALUES
  ('O-101', 'LMP-1', 2, 3400, 0), ('O-101', 'BLB-1', 6, 450, 0), ('O-102', 'PAN-1', 1, 2900, 0), ('O-103', 'KET-1', 1, 3900, 0),
  ('O-104', 'KET-1', 1, 3700, 0), ('O-104', 'PAN-1', 2, 2900, 1), ('O-105', 'RUG-1', 1, 15900, 0), ('O-106', 'LMP-2', 1, 8900, 0),
  ('O-107', 'KET-2', 1, 4900, 0), ('O-108', 'BLB-1', 10, 450, 0);
INSERT INTO refunds VALUES (1, 'O-104', 'PAN-1', 1, 2900, 'damaged', '2026-02-20');
