//! Against a real Redis, which each test starts for itself.

mod batches;
mod checks;
mod cluster;
mod edges;
mod faults;
mod later;
mod leases;
mod model;
mod places;
mod rig;
mod sentinel;
mod together;
