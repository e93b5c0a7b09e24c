//! Holders on a clock that a test moves.

mod bounds;
mod loom;
mod sim;
mod table;
mod words;
