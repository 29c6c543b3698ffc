//! Access to a daemon, for commands that are its clients.

use squall::Error;
use squall_server::{Client, Verify};

/// The URL of the daemon of this machine.
pub const HERE: &str = "https://127.0.0.1:8443";

#[derive(Debug, clap::Args)]
pub struct Access {
    /// Use this token [default: SQUALL_TOKEN, or, for a daemon on this machine, the one in its
    /// folder, if it can be read]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Check the daemon's certificate: sha256:AB:CD... by this fingerprint, FILE by these
    /// certificates (PEM), true by the system's authorities only, false not at all [default: by the
    /// one in the folder of a daemon on this machine, or by the system's authorities; otherwise it
    /// is trusted when first seen, and must stay the same from then on]
    #[arg(long, value_name = "sha256:...|FILE|true|false")]
    verify: Option<Verify>,
}

/// A daemon, and access to it.
#[derive(Debug, clap::Args)]
pub struct Daemon {
    /// Ask the daemon at https://HOST[:PORT], at http://... (one that is --plain), or at unix:PATH
    /// on this machine
    #[arg(long, value_name = "URL", default_value = HERE)]
    daemon: String,
    #[command(flatten)]
    access: Access,
}

impl Daemon {
    pub fn client(&self) -> Result<Client, Error> {
        self.access.client(&self.daemon)
    }
}

impl Access {
    pub fn client(&self, url: &str) -> Result<Client, Error> {
        let of_environment =
            || std::env::var("SQUALL_TOKEN").ok().filter(|token| !token.is_empty());
        let token = self.token.clone().or_else(of_environment);
        Client::new(url, token, self.verify.as_ref().unwrap_or(&Verify::Known))
    }
}
