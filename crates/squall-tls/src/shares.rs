//! X25519 for sessions that are resumed: key shares that are used again.
//!
//! A resumed session of TLS 1.3 is to cost little, but rustls knows `psk_dhe_ke` only (RFC 8446
//! section 4.2.9), so each has four operations on the curve, two thirds of its CPU time. A client
//! that has a ticket sends the same share each time. An end that has seen the other's share before
//! has the secret already: a server answers it with the share of that time. Clients without a
//! ticket have new shares; one whose ticket has expired or is refused has not. RFC 8446 does not forbid it; it costs resumed sessions forward
//! secrecy.
//!
//! Shares and secrets are those of a thread, that is of a worker.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
};

use rustls::{
    Error, NamedGroup, PeerMisbehaved,
    crypto::{
        ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup,
        ring,
    },
};
use x25519_dalek::{PublicKey, StaticSecret};

/// Shares of the other ends that a worker remembers; the oldest are forgotten.
const KNOWN: usize = 64;

thread_local! {
    static RESUMES: Cell<bool> = const { Cell::new(false) };
    static CLIENT: RefCell<Client> = RefCell::default();
    /// By the client's share: the server's own, and the secret.
    static CLIENTS: RefCell<Recent<([u8; 32], [u8; 32])>> = RefCell::default();
}

/// Says whether the client that this thread makes next has a ticket. To be called where rustls asks
/// for one, before it makes the key share.
pub fn client_resumes(resumes: bool) {
    RESUMES.set(resumes);
}

/// X25519, by ring, and by x25519-dalek where a client uses its key again: ring's keys are used up
/// by their first agreement.
#[derive(Debug)]
pub(crate) struct Reused;

impl SupportedKxGroup for Reused {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        if !RESUMES.take() {
            return ring::kx_group::X25519.start();
        }
        let public = CLIENT.with_borrow_mut(Client::public)?;
        Ok(Box::new(Share { public }))
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let complete = |(public, secret): ([u8; 32], [u8; 32])| CompletedKeyExchange {
            group: self.name(),
            pub_key: public.to_vec(),
            secret: SharedSecret::from(&secret[..]),
        };
        let share = <[u8; 32]>::try_from(peer).map_err(|_| invalid())?;
        if let Some(known) = CLIENTS.with_borrow(|all| all.get(&share)) {
            return Ok(complete(known));
        }
        let own = ring::kx_group::X25519.start()?;
        let public = <[u8; 32]>::try_from(own.pub_key()).expect("a point of X25519");
        let secret = own.complete(peer)?;
        let secret = <[u8; 32]>::try_from(secret.secret_bytes()).expect("a point of X25519");
        CLIENTS.with_borrow_mut(|all| all.add(share, (public, secret)));
        Ok(complete((public, secret)))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

fn invalid() -> Error {
    PeerMisbehaved::InvalidKeyShare.into()
}

/// The key pair of a worker's clients that have tickets.
#[derive(Default)]
struct Client {
    key: Option<(StaticSecret, [u8; 32])>,
    /// The secret by the server's share.
    servers: Recent<[u8; 32]>,
}

impl Client {
    fn public(&mut self) -> Result<[u8; 32], Error> {
        if let Some((_, public)) = &self.key {
            return Ok(*public);
        }
        let mut octets = [0; 32];
        let provider: CryptoProvider = ring::default_provider();
        provider.secure_random.fill(&mut octets)?;
        let key = StaticSecret::from(octets);
        let public = PublicKey::from(&key).to_bytes();
        self.key = Some((key, public));
        Ok(public)
    }

    fn agree(&mut self, share: [u8; 32]) -> Result<[u8; 32], Error> {
        if let Some(secret) = self.servers.get(&share) {
            return Ok(secret);
        }
        let (key, _) = self.key.as_ref().expect("a share was made");
        let secret = key.diffie_hellman(&PublicKey::from(share));
        // RFC 8446 section 7.4.2: the shared secret is not all zeros.
        if !secret.was_contributory() {
            return Err(invalid());
        }
        self.servers.add(share, secret.to_bytes());
        Ok(secret.to_bytes())
    }
}

/// A client's share that was sent before.
struct Share {
    public: [u8; 32],
}

impl ActiveKeyExchange for Share {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let share = <[u8; 32]>::try_from(peer).map_err(|_| invalid())?;
        let secret = CLIENT.with_borrow_mut(|client| client.agree(share))?;
        Ok(SharedSecret::from(&secret[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// The newest entries by a share.
#[derive(Default)]
struct Recent<T> {
    of: HashMap<[u8; 32], T>,
    order: VecDeque<[u8; 32]>,
}

impl<T: Copy> Recent<T> {
    fn get(&self, share: &[u8; 32]) -> Option<T> {
        self.of.get(share).copied()
    }

    fn add(&mut self, share: [u8; 32], value: T) {
        if self.of.insert(share, value).is_some() {
            return;
        }
        if self.order.len() == KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.of.remove(&oldest);
        }
        self.order.push_back(share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secrets of both ends, and the shares of client and server.
    fn exchange(resumes: bool) -> ([u8; 32], Vec<u8>, Vec<u8>) {
        client_resumes(resumes);
        let client = Reused.start().unwrap();
        let share = client.pub_key().to_vec();
        let server = Reused.start_and_complete(&share).unwrap();
        let secret = client.complete(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
        (secret.secret_bytes().try_into().unwrap(), share, server.pub_key)
    }

    #[test]
    fn a_client_with_a_ticket_and_its_server_use_their_shares_again() {
        let first = exchange(true);
        assert_eq!(exchange(true), first);
        let full = exchange(false);
        assert_ne!((full.0, &full.1, &full.2), (first.0, &first.1, &first.2));
        assert_ne!(exchange(false), full);
        assert_eq!(exchange(true), first);
    }

    #[test]
    fn a_server_with_a_new_share_each_time_gets_the_same_share_and_another_secret() {
        client_resumes(true);
        let [one, two] = [(), ()].map(|()| {
            client_resumes(true);
            let client = Reused.start().unwrap();
            let server = ring::kx_group::X25519.start_and_complete(client.pub_key()).unwrap();
            let share = client.pub_key().to_vec();
            let secret = client.complete(&server.pub_key).unwrap();
            assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
            (share, secret.secret_bytes().to_vec())
        });
        assert_eq!(one.0, two.0);
        assert_ne!(one.1, two.1);
    }

    #[test]
    fn shares_that_are_no_points_are_refused_and_the_oldest_are_forgotten() {
        for wrong in [&[0; 32][..], &[9; 31], &[]] {
            assert!(Reused.start_and_complete(wrong).is_err());
            client_resumes(true);
            assert!(Reused.start().unwrap().complete(wrong).is_err());
        }
        let mut recent = Recent::default();
        for n in 0..=u8::try_from(KNOWN).unwrap() {
            recent.add([n; 32], n);
        }
        assert_eq!((recent.get(&[0; 32]), recent.get(&[1; 32])), (None, Some(1)));
        assert_eq!((recent.of.len(), recent.order.len()), (KNOWN, KNOWN));
    }
}
