//! A single binary for all tests, because each binary would link all dependencies again.

mod expressions;
mod messages;
mod mutants;
mod own_rules;
