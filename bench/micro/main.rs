//! Micro benches: `cargo bench --bench micro [FILTER]`.
//!
//! Besides time, divan prints what a run allocates; rows without allocation lines allocate nothing.

mod compile;
mod limit;
mod router;

#[global_allocator]
static ALLOC: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}
