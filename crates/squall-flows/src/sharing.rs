//! Templates whose servers share addresses and a port: how a server finds the template of a flow.
//!
//! A server recognizes a flow's template by its client: by the client's address if the templates
//! have different client addresses. Templates with the same clients, or with hosts as clients,
//! whose addresses are not known before, get disjoint shares of the clients' ports, so that the
//! client's port identifies the template. Both sides compute the same shares independently because
//! they have the same load.

use squall_apps::Program;

use crate::{AddrRange, Arrival, Load, LoadError, Template, Tuples};

/// The ports of a template's clients: those with `port % of == rank`.
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
    /// Per template.
    pub shares: Vec<Share>,
    /// Per template: whether another template has servers at the same addresses and port.
    pub shared: Vec<bool>,
    /// Templates that no server could distinguish.
    pub error: Option<LoadError>,
}

impl Sharing {
    /// `clients`: the load's client pools.
    pub fn of(load: &Load, clients: &[Tuples]) -> Self {
        let mut sharing = Self {
            shares: vec![Share::ALL; load.templates.len()],
            shared: vec![false; load.templates.len()],
            error: None,
        };
        // Excludes the templates of scripts, because both ends know the conversations of a script.
        let all = &load.templates[..load.own_templates()];
        let serves = |template: &Template| template.ends.has_servers() && !template.gone;
        let meet = |a: &Template, b: &Template| {
            (serves(a) && serves(b))
                && a.pair == b.pair
                && a.port == b.port
                && a.kind() == b.kind()
                && overlap(&load.servers[a.servers].ranges, &load.servers[b.servers].ranges)
        };
        let alike = |a: &Template, b: &Template| {
            let (one, other) = (&load.clients[a.clients], &load.clients[b.clients]);
            let hosts = one.hosts.is_some() || other.hosts.is_some();
            meet(a, b) && (hosts || overlap(&one.ranges, &other.ranges))
        };
        for (i, shared) in sharing.shared[..all.len()].iter_mut().enumerate() {
            *shared = all.iter().enumerate().any(|(j, other)| j != i && meet(&all[i], other));
        }
        // Templates that are not in a group yet.
        let mut alone: Vec<usize> = (0..all.len()).filter(|i| sharing.shared[*i]).collect();
        while !alone.is_empty() {
            let i = alone.remove(0);
            let (mut group, mut at) = (vec![i], 0);
            while let Some(one) = group.get(at).copied() {
                // Grouping is transitive, because templates A and C may overlap only with B, and
                // then all three need disjoint ports.
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
            // Shares cannot separate the templates of external clients, because these choose their
            // own ports.
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
                sharing.error.get_or_insert(error);
            }
        }
        sharing
    }

    /// Whether a template has the same share as in `before`.
    pub fn is_same(&self, before: &Self, template: usize) -> bool {
        (self.shares[template], self.shared[template])
            == (before.shares[template], before.shared[template])
    }
}

/// Whether clients cannot observe which of two templates serves them. Names are ignored.
fn same_server(a: &Template, b: &Template) -> bool {
    let program = Program { name: a.server.name.clone(), ..b.server.clone() };
    (&a.server, &a.tls, &a.http, &a.http3, &a.server_tunables, a.proxy.is_some())
        == (&program, &b.tls, &b.http, &b.http3, &b.server_tunables, b.proxy.is_some())
}

fn overlap(a: &[AddrRange], b: &[AddrRange]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.first() <= b.last() && b.first() <= a.last()))
}
