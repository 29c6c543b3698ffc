//! Templates whose servers share addresses and a port: how a server knows which of them a flow is
//! of.
//!
//! It knows by who comes. Templates whose clients have other addresses are told apart by these;
//! those of the same clients have each their own share of the clients' ports, so that the client's
//! end says it. Both ends come to the same shares by themselves, as they have the same load.

use squall_apps::Program;

use crate::{AddrRange, Arrival, Load, LoadError, Template, Tuples};

/// Ports of a template's clients: those that have the remainder `rank` by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub rank: u16,
    pub of: u16,
}

impl Share {
    const ALL: Self = Self { rank: 0, of: 1 };
}

/// How the templates of a load share their servers.
pub(crate) struct Sharing {
    /// By template.
    pub shares: Vec<Share>,
    /// By template: whether its server is not the only one at its addresses and port.
    pub shared: Vec<bool>,
    /// What no server could tell apart.
    pub mistake: Option<LoadError>,
}

impl Sharing {
    /// `clients`: of each pool, ready to be drawn from.
    pub fn of(load: &Load, clients: &[Tuples]) -> Self {
        let mut sharing = Self {
            shares: vec![Share::ALL; load.templates.len()],
            shared: vec![false; load.templates.len()],
            mistake: None,
        };
        // Conversations of a script are known by both ends.
        let all = &load.templates[..load.own_templates()];
        let serves = |template: &Template| template.ends.has_servers() && !template.gone;
        let meet = |a: &Template, b: &Template| {
            (serves(a) && serves(b))
                && a.port == b.port
                && a.server.transport == b.server.transport
                && overlap(&load.servers[a.servers].ranges, &load.servers[b.servers].ranges)
        };
        let alike = |a: &Template, b: &Template| {
            meet(a, b) && overlap(&load.clients[a.clients].ranges, &load.clients[b.clients].ranges)
        };
        for (i, shared) in sharing.shared[..all.len()].iter_mut().enumerate() {
            *shared = all.iter().enumerate().any(|(j, other)| j != i && meet(&all[i], other));
        }
        // Those that nobody has joined yet.
        let mut alone: Vec<usize> = (0..all.len()).filter(|i| sharing.shared[*i]).collect();
        while !alone.is_empty() {
            let i = alone.remove(0);
            let (mut group, mut at) = (vec![i], 0);
            while let Some(one) = group.get(at).copied() {
                let (joined, rest) =
                    alone.into_iter().partition(|other| alike(&all[one], &all[*other]));
                alone = rest;
                group.extend::<Vec<usize>>(joined);
                at += 1;
            }
            if group.len() == 1 {
                continue;
            }
            group.sort_unstable();
            let of = group.len() as u16;
            let enough = |(rank, template): (u16, &usize)| {
                clients[all[*template].clients].share(rank, of).is_some()
            };
            let foreign = group.iter().any(|template| all[*template].arrival == Arrival::None);
            if !foreign && (0..of).zip(&group).all(enough) {
                (0..of)
                    .zip(&group)
                    .for_each(|(rank, template)| sharing.shares[*template] = Share { rank, of });
                continue;
            }
            if foreign {
                group.iter().for_each(|template| sharing.shared[*template] = false);
            }
            if let Some(other) = group.iter().find(|other| !same_server(&all[i], &all[**other])) {
                let (template, first) = (all[*other].name.clone(), all[i].name.clone());
                let pool = load.clients[all[*other].clients].name.clone();
                let error = match foreign {
                    true => LoadError::SharedByOthers { template, first, port: all[i].port },
                    false => {
                        LoadError::SharedPorts { template, first, port: all[i].port, pool, of }
                    }
                };
                sharing.mistake.get_or_insert(error);
            }
        }
        sharing
    }

    /// Whether a template is known as before.
    pub fn is_same(&self, before: &Self, template: usize) -> bool {
        (self.shares[template], self.shared[template])
            == (before.shares[template], before.shared[template])
    }
}

/// Whoever is served does not see which of them did it.
fn same_server(a: &Template, b: &Template) -> bool {
    let program = Program { name: a.server.name.clone(), ..b.server.clone() };
    (&a.server, &a.tls, &a.server_tunables) == (&program, &b.tls, &b.server_tunables)
}

fn overlap(a: &[AddrRange], b: &[AddrRange]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.first() <= b.last() && b.first() <= a.last()))
}
