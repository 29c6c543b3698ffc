//! One binary for all tests, since each binary links all dependencies again.

mod expressions;
mod messages;
mod mutants;
mod own_rules;
