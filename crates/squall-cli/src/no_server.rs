//! Replaces `server` in builds without that feature.

use std::process::ExitCode;

use squall::Error;

use crate::features::{Ignored, lacks};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    #[command(hide = true, disable_help_flag = true)]
    Serve(Ignored),
    #[command(hide = true, disable_help_flag = true)]
    Top(Ignored),
}

/// Arguments of `squall hosts show`.
pub type ShowArgs = Ignored;

pub fn show(_: &ShowArgs) -> Result<ExitCode, Error> {
    Err(lacks("hosts show", "server"))
}

/// Arguments of `squall routers show` and `squall routers order`.
pub type ShowRoutersArgs = Ignored;
pub type OrderArgs = Ignored;

pub fn show_routers(_: &ShowRoutersArgs) -> Result<ExitCode, Error> {
    Err(lacks("routers show", "server"))
}

pub fn order_routers(_: &OrderArgs) -> Result<ExitCode, Error> {
    Err(lacks("routers order", "server"))
}

pub fn run(command: &Command) -> Result<ExitCode, Error> {
    let name = match command {
        Command::Serve(_) => "serve",
        Command::Top(_) => "top",
    };
    Err(lacks(name, "server"))
}

pub fn lives_on(_: &Command) -> bool {
    false
}
