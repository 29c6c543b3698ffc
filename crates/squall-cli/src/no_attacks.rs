//! Replaces `attacks` in builds without that feature.

use std::process::ExitCode;

use squall::Error;

use crate::features::{Ignored, lacks};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    #[command(hide = true, disable_help_flag = true)]
    Attack(Ignored),
    #[command(hide = true, disable_help_flag = true)]
    Score(Ignored),
}

pub fn run(command: &Command) -> Result<ExitCode, Error> {
    let name = match command {
        Command::Attack(_) => "attack",
        Command::Score(_) => "score",
    };
    Err(lacks(name, "attacks"))
}
