//! Replaces `attacks` in a build without that feature: it has no commands.

use std::{convert::Infallible, process::ExitCode};

use squall::Error;

pub type Command = Infallible;

pub fn run(command: &Command) -> Result<ExitCode, Error> {
    match *command {}
}
