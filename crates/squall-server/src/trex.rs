//! TRex's clients: their messages over ZeroMQ, answered one after the other.
//!
//! A thread has the server ([`Server`]) and its two sockets: requests, and a bell that tells
//! subscribers that events wait. What the ports are used for is decided as for all others, by
//! leases.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use omq_tokio::{Context, Message, Options, SocketType, blocking::Socket};
use squall::{Error, units::MacAddr};
use squall_trex::{PortInfo, Server};

use crate::{
    runs::{Kind, ManagedStart, lock},
    service::Service,
};

/// Who holds the ports; no user may have this name.
pub const OWNER: &str = "trex";
/// Octets of a message, before it is unpacked.
const LARGEST: usize = 64 << 20;
/// Between two looks whether traffic has ended.
const EVERY: Duration = Duration::from_millis(20);
/// Of ports that do not tell theirs, as TRex has it: clients divide by it.
const UNKNOWN_SPEED: f64 = 10e9;
/// On the bell there is nothing to read.
const BELL: &[u8] = b"{}";

/// What TRex's clients are served.
#[derive(Clone, Debug)]
pub struct Trex {
    /// Addresses of ports 0, 1, ...
    pub ports: Vec<String>,
    /// Flows, too (TRex's ASTF mode).
    pub flows: bool,
    /// Streams with latency have TRex's header in the place of Squall's signature.
    pub headers: bool,
    pub sync: SocketAddr,
    pub asynchronous: SocketAddr,
}

/// The thread; it ends with this.
pub struct Serving {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Where it listens.
    pub sync: SocketAddr,
    pub asynchronous: SocketAddr,
}

impl Serving {
    /// # Errors
    /// Addresses that are taken, ports that are not there or may not be used.
    pub fn start(trex: &Trex, service: &Arc<Service>) -> Result<Self, Error> {
        let ports = infos(&trex.ports, service)?;
        let context = Context::new();
        let open = |kind, at: SocketAddr, said: &str| {
            let options = Options::default().max_message_size(LARGEST);
            let socket = context.blocking_socket(kind, options);
            let bound = socket.bind(format!("tcp://{at}").as_str()).map_err(|error| {
                Error::Environment(format!("{said} {at}: {error}\n  try another port"))
            });
            bound.map(|bound| (socket, address_of(&bound.to_string()).unwrap_or(at)))
        };
        let (requests, sync) = open(SocketType::Rep, trex.sync, "--trex-sync")?;
        let (bell, asynchronous) = open(SocketType::Pub, trex.asynchronous, "--trex-async")?;
        // As long as the server is there, its ports are held.
        lock(&service.leases).connect(OWNER);
        let kind = if trex.flows { Kind::Flows } else { Kind::Streams };
        let start = ManagedStart::new(Arc::downgrade(service), OWNER.into(), kind);
        let server = Server::new(ports, Box::new(start), trex.flows, trex.headers);
        let ends = Arc::new(AtomicBool::new(false));
        let stops = ends.clone();
        let service = Arc::downgrade(service);
        let thread = std::thread::Builder::new()
            .name("squall-trex".into())
            .spawn(move || {
                serve(server, &requests, &bell, &stops);
                left(&service);
                drop(context);
            })
            .map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))?;
        Ok(Self { ends, thread: Some(thread), sync, asynchronous })
    }

    /// Blocks until its traffic has ended.
    pub fn end(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn left(service: &Weak<Service>) {
    if let Some(service) = service.upgrade() {
        lock(&service.leases).disconnect(service.now(), OWNER);
    }
}

/// `tcp://127.0.0.1:4501`
fn address_of(endpoint: &str) -> Option<SocketAddr> {
    endpoint.strip_prefix("tcp://")?.parse().ok()
}

fn serve(mut server: Server, requests: &Socket, bell: &Socket, ends: &AtomicBool) {
    let ring = |rings: bool| {
        if rings {
            _ = bell.send(Message::single(BELL));
        }
    };
    let mut looked = Instant::now();
    while !ends.load(Ordering::Acquire) {
        if let Ok(message) = requests.recv_timeout(EVERY) {
            let request: Vec<u8> = message.iter().flat_map(|part| part.to_vec()).collect();
            let answered = catch_unwind(AssertUnwindSafe(|| server.answer(&request)));
            let (answer, rings) = answered.unwrap_or_else(|_| (DEFECT.to_vec(), false));
            // Whoever asked may be gone.
            _ = requests.send(Message::single(answer));
            ring(rings);
        }
        if looked.elapsed() >= EVERY {
            looked = Instant::now();
            ring(catch_unwind(AssertUnwindSafe(|| server.look())).unwrap_or(false));
        }
    }
    server.end();
    ring(true);
}

/// A request whose answer is a defect of ours.
const DEFECT: &[u8] = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"Internal error","specific_err":"this is a bug in Squall, please report it with the output of the daemon"}}"#;

/// What there is to know of ports before they are open.
fn infos(addresses: &[String], service: &Service) -> Result<Vec<PortInfo>, Error> {
    let interfaces = squall::list_interfaces().unwrap_or_default();
    let mut infos = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        service
            .ports
            .admit(address, &service.files)
            .map_err(|refusal| Error::Usage(format!("--trex {address}: {}", refusal.message)))?;
        let name = squall::interface_of(address);
        let interface = name.as_ref().and_then(|name| interfaces.iter().find(|i| i.name == *name));
        let given = address.split(",speed=").nth(1).and_then(|rest| rest.split(',').next());
        let given = given.and_then(|text| text.parse::<squall::units::Rate>().ok());
        infos.push(PortInfo {
            address: address.clone(),
            description: name.unwrap_or_else(|| address.clone()),
            mac: interface.and_then(|interface| interface.mac).unwrap_or(MacAddr([
                2,
                0,
                0,
                0,
                0,
                number as u8,
            ])),
            speed_bps: given
                .map(|rate| rate.num as f64 / rate.den as f64)
                .or_else(|| interface.and_then(|i| i.speed_bps).map(|bps| bps as f64))
                .or(Some(UNKNOWN_SPEED)),
            longest: interface.map_or(9_018, |interface| interface.mtu + 18),
            numa: interface.and_then(|interface| interface.numa_node),
            driver: interface.map(|interface| interface.driver.clone()).unwrap_or_default(),
            bus: interface.map(|interface| interface.bus.clone()).unwrap_or_default(),
        });
    }
    Ok(infos)
}
