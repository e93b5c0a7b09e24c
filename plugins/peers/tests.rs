//! Tests that look inside, and tests of several gateways over loopback.

mod certs;
mod counting;
mod faults;
mod frames;
mod ledgers;
mod moves;
mod rig;
