//! What the tests of several modules share.

use squall_tcp::{FlowKind, Tunables};

use crate::{Arrival, Template};

pub(crate) fn template(name: &str, arrival: Arrival) -> Template {
    Template {
        name: name.into(),
        kind: FlowKind::Tcp,
        clients: 0,
        servers: 0,
        port: 80,
        client_program: 0,
        server_program: 1,
        client_tunables: Tunables { mss: 1460 },
        server_tunables: Tunables { mss: 1460 },
        arrival,
        limit: None,
    }
}
