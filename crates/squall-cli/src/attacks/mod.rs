//! Commands that need the feature `attacks`.

mod attack;
mod score;

use std::process::ExitCode;

use squall::Error;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Attack(Box<attack::Args>),
    Score(Box<score::Args>),
}

pub fn run(command: &Command) -> Result<ExitCode, Error> {
    match command {
        Command::Attack(args) => attack::attack_command(args),
        Command::Score(args) => score::score_command(args),
    }
}
