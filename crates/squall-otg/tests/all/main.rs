//! A single test binary, because each further one is linked with all dependencies.

mod configs;
mod frames;
mod plan;
mod requests;
