CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), today TEXT NOT NULL);
CREATE TABLE customers (
  id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, credit_cents INTEGER NOT NULL DEFAULT 0 CHECK (credit_cents >= 0)
);
CREATE TABLE products (
  sku TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, price_cents INTEGER NOT NULL CHECK (price_cents > 0),
  stock INTEGER NOT NULL CHECK (stock >= 0)
);
CREATE TABLE orders (
  id TEXT NOT NULL PRIMARY KEY, customer_id TEXT NOT NULL REFERENCES customers (id), address TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('placed', 'shipped', 'delivered', 'cancelled')), placed_on TEXT NOT NULL, delivered_on TEXT
);
CREATE TABLE order_items (
  order_id TEXT NOT NULL REFERENCES orders (id), sku TEXT NOT NULL REFERENCES products (sku), quantity INTEGER NOT NULL CHECK (quantity > 0),
  price_cents INTEGER NOT NULL, returned INTEGER NOT NULL DEFAULT 0 CHECK (returned BETWEEN 0 AND quantity), PRIMARY KEY (order_id, sku)
);
CREATE TABLE refunds (
  id INTEGER PRIMARY KEY, order_id TEXT NOT NULL, sku TEXT NOT NULL, quantity INTEGER NOT NULL CHECK (quantity > 0),
  amount_cents INTEGER NOT NULL, reason TEXT NOT NULL, made_on TEXT NOT NULL,
  FOREIGN KEY (order_id, sku) REFERENCES order_items (order_id, sku)
);
CREATE INDEX orders_of_a_customer ON orders (customer_id, placed_on);
