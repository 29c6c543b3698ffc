//! Flows as text: the tables, and the values of [`crate::Flows`] that are made from them.

use serde_json::{Value as Json, json};
use squall_units::{Nanos, Rate, RateUnit, suggest};

use super::{
    node::{Node, Value},
    raw::ProfileTable,
    read::{
        Bounded, Count, Given, Place, Placed, Read, Reader, kinds, numbered, table, word, words,
    },
    stages::{Levels, Row},
};
use crate::{
    At, DataOrder, Delays, FlowContent, HostAddress, HostGroup, HttpVersion, Incomplete, Located,
    MigrateTo, Order, Play, Port, ProxyVersion, Ramp, Spacing, Stage, Tcp, Transport,
    emit::Emit,
    files::{hello_capture, is_file},
};

table! {
    /// Settings for all templates: their ports, the number of flows in all, and the time.
    FlowsTable makes
    /// Templates and their total load, or the conversations that are played instead.
    Flows {
        pools: Vec<Pool> = Vec::new(),
        templates: Vec<Template> = Vec::new(),
        /// The ports of clients and servers: indices into [`crate::Profile::ports`], at least one
        /// of them. A missing end is external.
        clients: Option<usize> = None,
        servers: Option<usize> = None,
        /// Further pairs of ports.
        pairs: Vec<PortPair> = Vec::new(),
        target: Option<Target> = None,
        ramp: Ramp = Ramp::default(),
    } from {
        /// A name from [ports], for the clients. May be left out if there is only one port, or if
        /// the clients are external.
        clients: String,
        /// A name from [ports], for the servers. Default: the second of two ports; otherwise the
        /// servers are external.
        servers: String,
        /// Templates with a weight together begin this many flows per second.
        cps: PerSecond,
        /// Templates with a weight together keep this many flows open.
        active: Count,
        /// Templates with a weight together begin as many flows as this rate of application data
        /// takes, both directions together.
        bandwidth: Rate,
        /// The load grows linearly from zero during this time.
        ramp_up: Nanos,
        /// Then it stays constant for this time. Default: to the end.
        hold: Nanos,
        /// Then it falls linearly to zero during this time.
        ramp_down: Nanos,
        /// The number of flows to begin, of all templates.
        limit: Count => Option<u64>,
        /// The highest number of flows that are open at a time; further ones are not begun, and
        /// counted.
        active_limit: Count => Option<u64>,
        /// The room for flows of each worker at each port, including those in TIME-WAIT; further
        /// ones are not begun or accepted, and counted as full. A flow takes up to 170 octets of
        /// memory. Default: as many as fit half of the machine's memory, but at least 2,097,152 and
        /// at most 268,435,456.
        max_flows: Bounded<1, 1_073_741_824> => Option<u32>,
        /// The time that open flows have at the end before they are aborted and counted. Default 5
        /// s.
        drain: Nanos => Option<Nanos>,
        /// How late a flow may begin; later ones are not begun, and counted as late. Default 1 s.
        max_delay: Nanos => Option<Nanos>,
        /// Addresses and encapsulation of the clients' packets.
        client_network: Network => Network,
        /// Addresses and encapsulation of the servers' packets.
        server_network: Network => Network,
        /// Further pairs of ports, each with templates of its own: `pair` of a template. They are
        /// counted from 2, after the ports of [flows].
        pair: Vec<PortPairTable>,
        /// All conversations of a capture, instead of templates.
        replay: Conversations => Option<Conversations>,
    }
}

table! {
    /// A further pair of ports for clients and servers.
    PortPairTable makes
    /// Ports of clients and servers in addition to those of [`Flows`].
    PortPair {
        /// Indices into [`crate::Profile::ports`], at least one of them. A missing end is external.
        clients: Option<usize> = None,
        servers: Option<usize> = None,
    } from {
        /// A name from [ports], for the clients. Default: the clients are external.
        clients: String,
        /// A name from [ports], for the servers. Default: the servers are external.
        servers: String,
        /// Addresses and encapsulation of the clients' packets.
        client_network: Network => Network,
        /// Addresses and encapsulation of the servers' packets.
        server_network: Network => Network,
    }
}

table! {
    /// The conversations of a capture, played over real TCP and UDP: each with its own addresses,
    /// ports and start.
    ConversationsTable makes
    /// All conversations of a capture, each with addresses and a beginning of its own.
    Conversations {
        begin: Begin = Begin::default(),
        at: At = At::default(),
    } from {
        /// A file, relative to the profile.
        capture: File => Located,
        /// They begin this many times as fast as they were captured. Default 1.
        multiplier: f64,
        /// This many begin per second, in their order.
        cps: PerSecond,
        /// true: they begin as fast as possible, in their order. Default false.
        topspeed: bool,
        /// Pauses inside conversations: "keep", "drop", or a factor. Default: scaled by the
        /// multiplier, "keep" with cps, "drop" with topspeed.
        delays: Delays => Option<Delays>,
        /// Shorter pauses are left out, because they come from the network. Default 1 ms.
        shortest_delay: Nanos => Option<Nanos>,
        /// How many times, each after the last conversation of the previous loop; 0: until the run
        /// ends. Default 1.
        loops: Count => u64 = 1,
        /// The time between two loops. Default 0.
        loop_delay: Nanos => Nanos,
        /// The highest number of conversations that are open at a time; others wait. Default: no
        /// limit.
        at_once: Count => Option<u64>,
        /// Addresses that replace those of the captured clients, in turn. Default: the captured
        /// ones.
        clients: OneOrMore => Vec<Located>,
        /// "ADDRESS", "ADDRESS:PORT" or "[ADDRESS]:PORT" that all conversations go to. Default: the
        /// captured servers.
        server: Located => Option<Located>,
        /// Conversations whose beginning or octets are missing from the capture: "skip" them, "cut"
        /// them at the first hole, or fill holes with "zeros". Default "skip".
        incomplete: Incomplete => Incomplete,
        /// The packets of the capture to use, as a tcpdump filter.
        filter: Located => Option<Located>,
        /// A conversation fails when nothing has arrived for this time, in addition to the pauses
        /// of the other side; 0: never. Default 10 s.
        within: Nanos => Option<Nanos>,
        /// How TCP behaves, as in templates.
        tcp: TextTable => Tcp,
    }
}

table! {
    /// Addresses and encapsulation of a side's packets. Without a gateway and a next hop, the MAC
    /// address of each peer is resolved.
    NetworkTable makes
    /// The headers around a side's packets.
    Network {} from {
        /// The side's MAC address. Default: that of the interface, if it has one.
        mac: Located => Option<Located>,
        /// true: each address has its own MAC address, counted up from `mac`. Default false.
        cluster: bool => bool,
        /// A router, whose MAC address is resolved; at most one per address family.
        gateway: OneOrMore => Vec<Located>,
        /// The MAC address that all packets go to; none is resolved.
        next_hop: Located => Option<Located>,
        /// The longest IP packet in octets, without tunnels. Default: the port's limit, less the
        /// headers of tunnels.
        mtu: Bounded<576, 65_535> => Option<u16>,
        /// From the outside in: "vlan 7", "vlan 7 priority 3", "qinq 100", "mpls 1000", and at most
        /// one tunnel: "gre FROM TO", "gre FROM TO key 5", "vxlan FROM TO 42 MAC", "gtp-u FROM TO
        /// TEID LOCAL-TEID", "gtp-u FROM TO TEID any port 5000". LOCAL-TEID is in received packets,
        /// and the port is the UDP source port of sent ones; 0: that of the packet inside.
        wrap: OneOrMore => Vec<Located>,
        /// Addresses with headers of their own.
        interface: Vec<Interface> => Vec<Interface>,
    }
}

table! {
    /// Addresses whose packets have headers of their own, such as hosts in several VLANs, hosts with
    /// different routers, or mobile users with a tunnel each.
    InterfaceTable makes
    /// Addresses whose packets have headers of their own.
    Interface {} from {
        /// Addresses of the side: "16.0.0.1-16.0.0.9", "16.0.0.0/24", or a list of these.
        addresses: OneOrMore => Vec<Located>,
        /// Addresses of the other side, in place of `addresses`: the headers are those of packets
        /// to and from them.
        peers: OneOrMore => Vec<Located>,
        /// The side's MAC address in their frames. Default: that of the side.
        mac: Located => Option<Located>,
        /// The MAC address to which their frames go. Default: as for the other addresses, if these
        /// have the same `wrap` or a fixed `next_hop`.
        next_hop: Located => Option<Located>,
        /// Layers between Ethernet and the packets, in place of those of the side: "vlan 7", "qinq
        /// 100", or "gtp-u FROM TO TEID LOCAL-TEID", or a list of these. Default: none.
        wrap: OneOrMore => Vec<Located>,
    }
}

table! {
    /// Addresses of clients or servers, and the order in which flows take them.
    PoolTable makes
    /// Addresses of clients or servers.
    Pool {
        at: At = At::default(),
    } from {
        /// The name that templates use.
        name: String => String,
        /// "16.0.0.1-16.0.0.254", "16.0.0.0/24", "fd00::1-fd00::ff", or a list of these; all of one
        /// family. Servers can also be host names, resolved when the run is opened. Clients and
        /// servers can be the hosts of a group: "host:NAME"; hosts that have an address take turns.
        /// "routes:ROUTER", "routes:ROUTER/GROUP": the first host of each route that the router
        /// announces, or the seventh with "#7" at the end.
        addresses: OneOrMore => Vec<Located>,
        /// Ports of clients: "1024-65535", the default.
        ports: PortRange => Option<(u16, u16)>,
        /// sequential: one address after the other, then the next port. random: shuffled, each once
        /// before any is used again. hash: drawn by a hash; a server by the hash of its client's
        /// address. Default "sequential".
        order: Order => Order,
        /// true: the next flow of any template has the next client. false: each template begins with
        /// the first one. Default false.
        shared: bool => bool,
    }
}

table! {
    /// Flows of one kind: the exchange between client and server, the addresses, the load. The
    /// exchange is `app`, or `client` and `server`, or `capture`.
    TemplateTable makes
    /// A kind of flows.
    Template {
        name: String = String::new(),
        /// Indices into [`Flows::pools`].
        clients: usize = 0,
        servers: usize = 0,
        content: FlowContent = FlowContent::default(),
        arrival: Arrival = Arrival::default(),
        /// The stages of `cps` or `users` from its start; may be empty. It ends with the last one.
        stages: Vec<Stage<f64>> = Vec::new(),
        at: At = At::default(),
    } from {
        /// Unique; reports use it. Default "template 1" and so on.
        name: String,
        /// The name of a pool, or addresses as in a pool.
        clients: OneOrMore,
        /// The name of a pool, addresses as in a pool, "host:NAME", or a host name, resolved when
        /// the run is opened: "www.example.net".
        servers: OneOrMore,
        /// The TCP or UDP port that servers listen on. Default: the application's usual port.
        listen: Bounded<1, 65_535> => Option<u16>,
        /// The pair of ports that plays it: 1, those of [flows], or a number of [[flows.pair]].
        /// Default 1.
        pair: Bounded<1, 64> => u16 = 1,
        /// Default "tcp", or the transport of the application.
        transport: Transport => Transport,
        /// A built-in application: http, dns, ...
        app: Located,
        /// Options of the application; a list if an option is given several times. Options whose
        /// names end in "_file" are files, relative to the profile.
        options: Lists<true>,
        /// Instructions of the client, one per element: "send \"hello\\r\\n\"", "recv 100", "delay
        /// 10 ms" ...
        client: Vec<Located>,
        /// Instructions of the server.
        server: Vec<Located>,
        /// Named messages that instructions send, with marks for the parts that differ from flow to
        /// flow.
        messages: TextTable,
        /// A CSV file whose columns messages use as ${data:COLUMN}, one record per flow; or a table
        /// that also sets the order.
        data: Data => Option<Data>,
        /// The end that Squall plays if [flows] has ports for both: "clients" (the servers are
        /// external), or "servers" (the clients are external, such as a proxy's). Default: both.
        play: Play => Play,
        /// A conversation of a capture: "file.pcap#3" is the third; without a number, the first.
        /// Relative to the profile.
        capture: Located,
        /// Delays of a captured conversation: "keep", "drop", or a factor. Default "keep".
        delays: Delays,
        /// The number of flows that begin per second, whatever the outcome of earlier ones.
        cps: PerSecond,
        /// A share of the load in [flows].
        weight: Bounded<1, { u32::MAX as u64 }>,
        /// The number of users, each of whom begins a flow when their last one has ended.
        users: Bounded<1, { u32::MAX as u64 }>,
        /// The time that a user waits between two flows.
        think: Nanos,
        /// true: flows begin only where programs of other flows have `begin NAME`. Default false.
        called: bool,
        /// How the starts of flows (with `cps` and `weight`) or the users' think times spread:
        /// "constant" or "poisson" (exponential). Default "constant".
        spacing: Spacing,
        /// How `cps` or `users` change, one stage after the other: each goes linearly from the
        /// previous level, 0 at first, to `to`. Without `cps` and `users` the levels are flows per
        /// second. The template ends with its last stage.
        stages: Vec<StageTable>,
        /// The number of flows to begin.
        limit: Count => Option<u64>,
        /// When the first flow may begin, after the start of the run, or after the end of the
        /// source that it comes `after`. Default 0.
        start: Nanos => Nanos,
        /// No flow begins after this time from its start, pauses included.
        duration: Nanos => Option<Nanos>,
        /// Flows begin when the stream, replay, template or attack of this name has ended.
        after: Located => Option<Located>,
        /// How TCP behaves: mss, peer_mss, initwnd, abc_limit, send_buffer, window, wscale, sack,
        /// timestamps, option_order, no_delay, delayed_ack, ack_octets, ack_push, push_all,
        /// rto_initial, rto_min, rto_max, syn_retries, retries, keepidle, keepintvl, keepcnt,
        /// time_wait, fin_wait, congestion, ecn, tos, ttl, udp_idle.
        tcp: TextTable => Tcp,
        /// The same of the clients alone, in addition to `tcp`.
        client_tcp: TextTable => Tcp,
        /// The same of the servers alone, in addition to `tcp`.
        server_tcp: TextTable => Tcp,
        /// true: the flows are TLS 1.3 sessions, with the exchange inside; or a table with
        /// settings. Default false.
        tls: TlsInput => Option<Tls>,
        /// "v1" or "v2": a header of the PROXY protocol precedes the octets of each flow, outside
        /// TLS; or a table with settings. Clients send it, servers require one of either version.
        /// Default: none.
        proxy_protocol: ProxyProtocol => Option<ProxyProtocol>,
        /// "2": the flows are connections of HTTP/2, whose streams carry the requests and answers
        /// of the programs; or a table with settings. With `tls` it is agreed on by ALPN; without,
        /// both ends know it (h2c). "2,1.1": the same with TLS, and HTTP/1.1 if the other end does
        /// not choose HTTP/2. "3": connections of HTTP/3, over QUIC and UDP, always with TLS.
        /// Default: HTTP/1.1, as the programs write it.
        http: HttpInput => Option<Http>,
        /// false: the template is ignored. Default true.
        enabled: bool,
    }
}

table! {
    /// A level, and how long it takes to reach it.
    StageTable {
        /// How long the level changes, or stays. Default 0: it changes at once.
        duration: Nanos,
        /// The level at the end: flows per second, or users; at most `cps` or `users`. Default: as
        /// before.
        to: Level,
    }
}

table! {
    /// Records of a CSV file, one per flow.
    DataTable makes
    /// Records of a CSV file, one for each flow.
    Data {} from {
        /// Comma-separated values; the first line names the columns. Relative to the profile.
        file: File => Located,
        /// circular: flow k has record k, and the first record follows the last. once: no flow
        /// begins after the last record. random: drawn for each flow. Default "circular".
        order: DataOrder => DataOrder,
    }
}

table! {
    /// Settings of TLS sessions, for the ends that Squall runs.
    TlsTable makes
    /// Settings of TLS sessions, for both sides.
    Tls {} from {
        /// The name that clients request (SNI), and the name in a certificate that Squall makes.
        /// With ${flow:DIGITS} or, with data, ${data:COLUMN} in it, each flow requests its own.
        /// Default: the server's address, which is not sent.
        server_name: Located => Option<Located>,
        /// The protocol inside (ALPN), in order of preference: "http/1.1", or a list. Default: none
        /// is offered.
        alpn: OneOrMore => Vec<Located>,
        /// A PEM file: clients verify the server's certificate with the certificates in it.
        /// Default: they accept any. Relative to the profile.
        ca: File => Option<Located>,
        /// A PEM file with the server's certificate, followed by the intermediate certificates.
        /// Default: a self-signed one is made for each run. Relative to the profile.
        certificate: File => Option<Located>,
        /// A PEM file with its key. Relative to the profile.
        key: File => Option<Located>,
        /// true: servers make a certificate for each name that a client requests. Default false:
        /// all names get the same.
        certificate_per_name: bool => bool,
        /// A PEM file with the certificate that clients show to servers that ask for one. Default:
        /// `certificate`, if Squall runs no servers. Relative to the profile.
        client_certificate: File => Option<Located>,
        /// A PEM file with its key. Relative to the profile.
        client_key: File => Option<Located>,
        /// A PEM file: servers ask clients for a certificate, and verify it with the certificates
        /// in the file. Default: they do not ask. Relative to the profile.
        client_ca: File => Option<Located>,
        /// true: servers give tickets, and clients return with them. Default false: each handshake
        /// is a full one.
        resumption: bool => bool,
        /// true: also clients with a ticket, and their servers, make a new key share for each
        /// session. Default false: they use the first one again, which saves two thirds of a resumed
        /// session's CPU time with TLS 1.3, and its forward secrecy.
        fresh_key_shares: bool => bool,
        /// true: sessions are resumed, clients with a ticket send their first requests before the
        /// handshake is complete (0-RTT), and servers accept and answer them. TLS 1.3. Default
        /// false.
        early_data: bool => bool,
        /// "1.3" or "1.2", or a list: the highest version that both ends support is used. Default
        /// "1.3".
        versions: OneOrMore => Vec<Located>,
        /// Cipher suites that clients offer and servers accept, in order of preference, by their
        /// names at IANA or OpenSSL: "TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES256-GCM-SHA384".
        /// Default: all, AES-128 first.
        ciphers: OneOrMore => Vec<Located>,
        /// Groups for the exchange of keys, in order of preference: "x25519", "secp256r1",
        /// "secp384r1", "X25519MLKEM768". Default: the first three, in this order.
        groups: OneOrMore => Vec<Located>,
        /// The ClientHello that clients send: that of a browser ("chrome-131", "firefox-135"; the
        /// list is in `squall flows apps`), a JA3 string, JA4_ro, or a capture with it, ".pcap" or
        /// ".pcapng", relative to the profile ("visit.pcapng:3": the third of them). Default: one
        /// of the library, which no browser sends.
        hello: HelloText => Option<Located>,
    }
}

table! {
    /// Settings of HTTP/2 or HTTP/3, for the ends that Squall runs.
    HttpTable makes
    /// Settings of HTTP/2 or HTTP/3, for both sides.
    Http {} from {
        /// "2", or "3": over QUIC. Default "2".
        version: HttpVersion => HttpVersion,
        /// The number of streams that a client has open at a time. Each runs the client's program
        /// by itself; the requests of app = "http" are divided among them. Default 1.
        streams: Bounded<1, 100> => u16 = 1,
        /// Octets that the peer may send on a stream before some of them are taken; four times as
        /// many on the connection. Default 65,535.
        window: Bounded<65_535, 2_147_483_647> => u32 = 65_535,
        /// Octets of the table of fields that the peer may use (HPACK). Default 4,096.
        header_table: Bounded<0, 65_536> => u32 = 4_096,
        /// The number of streams that a server accepts at a time; further ones are refused. Default
        /// 100.
        max_streams: Bounded<1, 1_000> => u32 = 100,
        /// true: with TLS, a connection uses HTTP/1.1 if the other end does not choose HTTP/2
        /// (ALPN). The requests of a client's streams then follow one another. Default false.
        fallback: bool => bool,
        /// Octets of the table of fields of HTTP/3 that the peer may use, and that each end uses of
        /// the other's (QPACK). Default 0: fields are compressed with the static table alone.
        qpack_table: Bounded<0, 4_096> => u32 = 0,
        /// true: servers of HTTP/3 answer the first packet of a client with a Retry, so that it
        /// proves its address. Default false.
        retry: bool => bool,
        /// true: clients of HTTP/3 begin with a packet of a reserved version, and with version 1
        /// when the server has answered it with its versions. Default false.
        reserved_version: bool => bool,
        /// Clients of HTTP/3 move each connection to another port or address after this number of
        /// requests, each time, with another connection ID. Default 0: never.
        migrate_after: Bounded<0, 1_000_000_000> => u32 = 0,
        /// "port": connections migrate to another port of the client, or "address": to a port of
        /// another client of the pool. Default "port".
        migrate_to: MigrateTo => MigrateTo,
        /// The port of a client of HTTP/3 changes after this number of requests, each time, as by a
        /// NAT that has forgotten it: with the same connection ID. Default 0: never.
        rebind_after: Bounded<0, 1_000_000_000> => u32 = 0,
        /// true: servers of HTTP/3 forbid their clients to move (disable_active_migration), and drop
        /// datagrams from another address. Default false.
        forbid_migration: bool => bool,
        /// true: clients of HTTP/3 resume sessions and send requests before the handshake is
        /// complete (0-RTT), and servers accept them. Default false.
        early_data: bool => bool,
    }
}

table! {
    /// Headers of the PROXY protocol, which clients send.
    ProxyTable makes
    /// Headers of the PROXY protocol, which clients send. Servers accept both versions.
    ProxyProtocol {} from {
        /// "v1", a line of text, or "v2", binary. Default "v2".
        version: ProxyVersion => ProxyVersion,
        /// Source addresses in the headers, in turn: "203.0.113.0/24", "fd00::1-fd00::ff". Default:
        /// the flows' own.
        sources: Located => Option<Located>,
        /// true: with the command LOCAL, as in the health checks of a proxy, without addresses.
        /// Version 2. Default false.
        local: bool => bool,
        /// A protocol (ALPN), of at most 255 octets: "h2". Version 2.
        alpn: Located => Option<Located>,
        /// A host name, of at most 255 octets: "www.example.net". Version 2.
        authority: Located => Option<Located>,
        /// true: with an identifier of 16 octets that differs from flow to flow. Version 2. Default
        /// false.
        unique_id: bool => bool,
        /// true: with a checksum (CRC32c). Version 2. Default false.
        checksum: bool => bool,
    }
}

kinds! {
    /// When flows begin.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    Arrival from TemplateTable {
        /// Flows per second.
        Cps { cps: f64, spacing: Spacing },
        /// A share of [`Flows::target`].
        Weight { weight: u32, spacing: Spacing },
        /// Users, each of whom begins a flow when their last one has ended and `think` has passed.
        Users { users: u32, think: Nanos, spacing: Spacing },
        /// Only programs of other flows begin them.
        Called = called,
        /// No arrivals: servers only.
        #[default]
        None,
    }
}

kinds! {
    /// The total of all templates with a weight.
    #[derive(Clone, Copy, Debug, PartialEq)]
    Target from FlowsTable {
        /// Flows that begin per second.
        Cps(cps: f64),
        /// Flows that are open at a time.
        Active(active: u64),
        /// Application data, both directions together.
        Bandwidth(bandwidth: Rate),
    }
}

kinds! {
    /// When the conversations of a capture begin.
    #[derive(Clone, Copy, Debug, PartialEq)]
    Begin from ConversationsTable {
        /// This many times as fast as they were captured.
        Captured(multiplier: f64 = 1.0),
        /// This many per second.
        Cps(cps: f64),
        /// As fast as possible.
        Top = topspeed,
    }
}

/// `true`, or a table.
#[derive(Debug)]
pub(super) struct TlsInput(Option<Tls>);

impl Read for TlsInput {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Bool(whether) => Some(Self(whether.then(Tls::default))),
            Value::Table(_) => {
                let mut table = TlsTable::read(node, cx)?;
                for (one, other, example, without) in [
                    ("certificate", "key", "server.key", "then one is made"),
                    ("key", "certificate", "server.pem", "then one is made"),
                    ("client_certificate", "client_key", "client.key", "then clients show none"),
                    ("client_key", "client_certificate", "client.pem", "then clients show none"),
                ] {
                    if table.given.has(one) && !table.given.has(other) {
                        let text = format!("has {one:?} without {other:?}");
                        let hint = format!(
                            "try adding {other} = {example:?}, or leave out both: {without}"
                        );
                        cx.report(&table.place, &text, &[hint]);
                    }
                }
                Some(Self(Some(table.made())))
            }
            _ => cx.wrong_type(
                node,
                "true, false or a table",
                "true, or { server_name = \"www.example.net\" }",
            ),
        }
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "boolean" }, TlsTable::schema()] })
    }
}

impl From<TlsInput> for Option<Tls> {
    fn from(TlsInput(tls): TlsInput) -> Self {
        tls
    }
}

impl Emit for Tls {
    fn emit(&self) -> Option<Json> {
        match *self == Self::default() {
            true => Some(json!(true)),
            false => Some(self.written(|_| None)),
        }
    }
}

/// `"2"`, `"2,1.1"`, `"3"`, or a table.
#[derive(Debug)]
pub(super) struct HttpInput(Http);

impl Read for HttpInput {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Text(text) if text == "2" => Some(Self(Http::default())),
            Value::Text(text) if text == "2,1.1" => {
                Some(Self(Http { fallback: true, ..Http::default() }))
            }
            Value::Text(text) if text == "3" => {
                Some(Self(Http { version: HttpVersion::Three, ..Http::default() }))
            }
            Value::Table(entries) => {
                let mut table = HttpTable::read(node, cx)?;
                if entries.is_empty() {
                    cx.report(&table.place, "has no settings", &["try http = \"2\"".to_owned()]);
                }
                let made = table.made();
                check_http(&made, &table.given, &table.place, cx);
                Some(Self(made))
            }
            _ => cx.wrong_type(
                node,
                "\"2\", \"2,1.1\", \"3\" or a table",
                "\"2\", or { streams = 4, fallback = true }",
            ),
        }
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": ["2", "2,1.1", "3"] }, HttpTable::schema()] })
    }
}

/// Reports keys of another version.
fn check_http(made: &Http, given: &Given, place: &Place, cx: &mut Reader<'_>) {
    let (keys, why, hint) = match made.version {
        HttpVersion::Two => {
            let keys = &[
                "qpack_table",
                "retry",
                "reserved_version",
                "migrate_after",
                "migrate_to",
                "rebind_after",
                "forbid_migration",
                "early_data",
            ][..];
            (keys, "HTTP/2 has none", "try version = \"3\"")
        }
        HttpVersion::Three => {
            let why = "HTTP/3 has no such setting";
            (&["header_table", "fallback"][..], why, "try leaving it out")
        }
    };
    for key in keys.iter().filter(|key| given.has(key)) {
        let hint = if *key == "early_data" { "try tls = { early_data = true }" } else { hint };
        cx.report(place, &format!("has {key:?}, but {why}"), &[hint.to_owned()]);
    }
    let three = made.version == HttpVersion::Three;
    if three && given.has("migrate_to") && made.migrate_after == 0 {
        let what = "has \"migrate_to\", but no connection migrates";
        cx.report(place, what, &["try migrate_after = 10".to_owned()]);
    }
}

impl From<HttpInput> for Option<Http> {
    fn from(HttpInput(http): HttpInput) -> Self {
        Some(http)
    }
}

impl Emit for Http {
    fn emit(&self) -> Option<Json> {
        let of = |version, fallback| Self { version, fallback, ..Self::default() };
        Some(match self {
            _ if *self == of(HttpVersion::Two, false) => json!("2"),
            _ if *self == of(HttpVersion::Two, true) => json!("2,1.1"),
            _ if *self == of(HttpVersion::Three, false) => json!("3"),
            _ => self.written(|_| None),
        })
    }
}

/// A version, or a table.
impl Read for ProxyProtocol {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Table(_) => {
                let mut table = ProxyTable::read(node, cx)?;
                let made = table.made();
                check_proxy(&made, &table.given, &table.place, cx);
                Some(made)
            }
            Value::Text(_) => {
                Some(Self { version: ProxyVersion::read(node, cx)?, ..Self::default() })
            }
            _ => cx.wrong_type(
                node,
                "a version or a table",
                "\"v2\", or { version = \"v1\", sources = \"203.0.113.0/24\" }",
            ),
        }
    }
    fn schema() -> Json {
        json!({ "anyOf": [ProxyVersion::schema(), ProxyTable::schema()] })
    }
}

/// Reports keys that do not fit each other, and values that are too long.
fn check_proxy(made: &ProxyProtocol, given: &Given, place: &Place, cx: &mut Reader<'_>) {
    const BINARY: [&str; 5] = ["local", "alpn", "authority", "unique_id", "checksum"];
    const ADDED: [&str; 5] = ["sources", "alpn", "authority", "unique_id", "checksum"];
    let (keys, why, hint) = match made {
        ProxyProtocol { version: ProxyVersion::V1, .. } => {
            (&BINARY[..], "version 1 has no such field", "try version = \"v2\"")
        }
        ProxyProtocol { local: true, .. } => {
            (&ADDED[..], "headers with local are empty", "try local = false")
        }
        _ => (&[][..], "", ""),
    };
    for key in keys.iter().filter(|key| given.has(key)) {
        cx.report(place, &format!("has {key:?}, but {why}"), &[hint.to_owned()]);
    }
    for (key, value) in [("alpn", &made.alpn), ("authority", &made.authority)] {
        let len = value.as_ref().map_or(1, |value| value.text.len());
        if !(1..=255).contains(&len) {
            let hint = "expected 1 to 255".to_owned();
            cx.report(place, &format!("has {key:?} with {len} octets"), &[hint]);
        }
    }
}

impl Emit for ProxyProtocol {
    fn emit(&self) -> Option<Json> {
        match *self == (Self { version: self.version, ..Self::default() }) {
            true => self.version.emit(),
            false => Some(self.written(|_| None)),
        }
    }
}

/// A file, or a table.
impl Read for Data {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Table(_) => {
                let mut table = DataTable::read(node, cx)?;
                cx.need(&table.place, &table.given, "file", r#"file = "users.csv""#)?;
                Some(table.made())
            }
            Value::Text(_) => {
                let File(file) = File::read(node, cx)?;
                Some(Self { file, ..Self::default() })
            }
            _ => cx.wrong_type(
                node,
                "a CSV file or a table",
                "\"users.csv\", or { file = \"users.csv\", order = \"once\" }",
            ),
        }
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "string" }, DataTable::schema()] })
    }
}

impl Emit for Data {
    fn emit(&self) -> Option<Json> {
        match self.order == DataOrder::default() {
            true => self.file.emit(),
            false => Some(self.written(|_| None)),
        }
    }
}

words!(
    DataOrder,
    "an order of records": "circular" => Circular, "once" => Once, "random" => Random,
);
words!(Play, "an end to play": "both" => Both, "clients" => Clients, "servers" => Servers);
words!(
    Order,
    "an order of addresses": "sequential" => Sequential, "random" => Random, "hash" => Hash,
);
words!(HttpVersion, "a version of HTTP with streams": "2" => Two, "3" => Three);
words!(MigrateTo, "an end to migrate to": "port" => Port, "address" => Address);
words!(ProxyVersion, "a version of the PROXY protocol": "v1" => V1, "v2" => V2);
words!(Transport, "a transport": "tcp" => Tcp, "udp" => Udp);
words!(Spacing, "a spacing": "constant" => Constant, "poisson" => Poisson);
words!(
    Incomplete,
    "a setting for incomplete conversations": "skip" => Skip, "cut" => Cut, "zeros" => Zeros,
);

/// A rate per second: 10000, "10k", 0.5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PerSecond(pub f64);

impl Read for PerSecond {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match Level::parse(node).filter(|number| *number > 0.0) {
            Some(value) => Some(Self(value)),
            None => cx.wrong_type(node, "a number above 0", r#"10000, "10k" or 0.5"#),
        }
    }
    fn schema() -> Json {
        json!({ "type": ["number", "string"], "title": "PerSecond", "exclusiveMinimum": 0, "examples": [10000, "10k", 0.5] })
    }
}

impl From<PerSecond> for f64 {
    fn from(PerSecond(number): PerSecond) -> Self {
        number
    }
}

/// A number including 0: 500, "1k", 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level(pub f64);

impl Level {
    fn parse(node: &Node) -> Option<f64> {
        let text = node.scalar().unwrap_or_default();
        let plain = text.parse::<f64>().ok();
        let value = plain.or_else(|| squall_units::parse_count(&text).ok().map(|n| n as f64));
        value.filter(|x| x.is_finite() && *x >= 0.0)
    }
}

impl Read for Level {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match Self::parse(node) {
            Some(value) => Some(Self(value)),
            None => cx.wrong_type(node, "a number, 0 or more", r#"500, "1k" or 0"#),
        }
    }
    fn schema() -> Json {
        json!({ "type": ["number", "string"], "title": "Level", "minimum": 0, "examples": [500, "1k", 0] })
    }
}

impl Read for Located {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let text = match &node.value {
            Value::Bool(b) => Some(b.to_string()),
            _ => node.scalar(),
        };
        match text {
            Some(text) => Some(Self { text, at: cx.at(node.start) }),
            None => cx.wrong_type(node, "text", "\"...\""),
        }
    }
    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"], "title": "Text" })
    }
}

/// The name of a file, relative to the profile.
#[derive(Clone, Debug)]
pub(super) struct File(pub Located);

impl Read for File {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let Located { text, at } = Located::read(node, cx)?;
        Some(Self(Located { text: cx.resolve(&text), at }))
    }
    fn schema() -> Json {
        Located::schema()
    }
}

impl From<File> for Located {
    fn from(File(file): File) -> Self {
        file
    }
}

impl From<File> for Option<Located> {
    fn from(File(file): File) -> Self {
        Some(file)
    }
}

/// A browser, a fingerprint, or a capture, whose path is relative to the profile.
#[derive(Clone, Debug)]
pub(super) struct HelloText(pub Located);

impl Read for HelloText {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let Located { text, at } = Located::read(node, cx)?;
        let is_capture = hello_capture(&text).is_some();
        Some(Self(Located { text: if is_capture { cx.resolve(&text) } else { text }, at }))
    }
    fn schema() -> Json {
        Located::schema()
    }
}

impl From<HelloText> for Option<Located> {
    fn from(HelloText(text): HelloText) -> Self {
        Some(text)
    }
}

/// A text, or a list of texts.
#[derive(Clone, Debug)]
pub(super) struct OneOrMore(pub Vec<Located>);

impl Read for OneOrMore {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match node.value {
            Value::List(_) => Vec::read(node, cx).map(Self),
            _ => Located::read(node, cx).map(|one| Self(vec![one])),
        }
    }
    fn schema() -> Json {
        json!({ "title": "OneOrMore", "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
    }
}

impl From<OneOrMore> for Vec<Located> {
    fn from(OneOrMore(texts): OneOrMore) -> Self {
        texts
    }
}

/// Any names, with texts.
#[derive(Clone, Debug, Default)]
pub(super) struct TextTable(pub Vec<(String, Located)>);

impl From<TextTable> for Tcp {
    fn from(TextTable(settings): TextTable) -> Self {
        Self { settings }
    }
}

impl Read for TextTable {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let entries = cx.table(node)?;
        let mut texts = Vec::new();
        for entry in entries {
            let text = cx.below(&entry.key, |cx| Located::read(&entry.node, cx));
            texts.extend(text.map(|text| (entry.key.clone(), text)));
        }
        (texts.len() == entries.len()).then_some(Self(texts))
    }
    fn schema() -> Json {
        json!({ "type": "object", "title": "Texts", "additionalProperties": { "type": ["string", "number", "boolean"] } })
    }
}

/// Any names, with a text or several each; `FILES`: texts whose names end in "_file" are paths
/// relative to the profile.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists<const FILES: bool>(pub Vec<(String, Located)>);

impl<const FILES: bool> Read for Lists<FILES> {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let (mut texts, mut right) = (Vec::new(), true);
        for entry in cx.table(node)? {
            let found = cx.below(&entry.key, |cx| OneOrMore::read(&entry.node, cx));
            right &= found.is_some();
            let file = FILES && is_file(&entry.key);
            for Located { text, at } in found.into_iter().flat_map(|OneOrMore(texts)| texts) {
                let text = if file { cx.resolve(&text) } else { text };
                texts.push((entry.key.clone(), Located { text, at }));
            }
        }
        right.then_some(Self(texts))
    }
    fn schema() -> Json {
        let one = json!({ "type": ["string", "number", "boolean"] });
        let some = json!({ "anyOf": [one, { "type": "array", "items": one }] });
        json!({ "type": "object", "additionalProperties": some })
    }
}

/// `1024-65535`
#[derive(Clone, Copy, Debug)]
pub(super) struct PortRange(u16, u16);

impl From<PortRange> for Option<(u16, u16)> {
    fn from(PortRange(first, last): PortRange) -> Self {
        Some((first, last))
    }
}

impl Read for PortRange {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let text = node.scalar().unwrap_or_default();
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first @ 1..), Ok(last)) if first <= last => Some(Self(first, last)),
            _ => cx.wrong_type(node, "a range of TCP or UDP ports", r#""1024-65535""#),
        }
    }
    fn schema() -> Json {
        json!({ "type": ["string", "integer"], "examples": ["1024-65535"] })
    }
}

impl Read for Delays {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Integer(_) | Value::Float(_) => {
                let factor = f64::read(node, cx)?;
                if factor > 0.0 && factor <= 1e6 {
                    return Some(Self::Scale(factor));
                }
                cx.wrong_type(node, "a factor above 0, at most a million", "0.5")
            }
            _ => {
                word(node, cx, "a setting of delays", &[("keep", Self::Keep), ("drop", Self::Drop)])
            }
        }
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": ["keep", "drop"] }, { "type": "number", "exclusiveMinimum": 0 }] })
    }
}

/// Reads the flows. Returns `None` if the profile has no template and plays no capture.
pub(super) fn flows(
    table: &mut ProfileTable,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Option<Flows> {
    let templates: Vec<(usize, TemplateTable)> =
        table.template.take().map_or_else(Vec::new, |templates| {
            templates
                .value
                .into_iter()
                .enumerate()
                .filter(|(_, t)| t.enabled.as_ref().is_none_or(|e| e.value))
                .collect()
        });
    let pools = table.pool.take().map_or_else(Vec::new, |pools| pools.value);
    let shared = table.flows.take();
    if let Some(Placed { value, .. }) = &shared
        && value.replay.is_some()
    {
        only_plays(value, (pools.first().map(|p| &p.place), &templates), cx);
        return Some(common(shared, ports, cx));
    }
    if templates.is_empty() {
        let unused = [
            shared.map(|shared| (shared.place, "[flows]")),
            pools.first().map(|p| (p.place.clone(), "[[pool]]")),
        ];
        if let Some((place, what)) = unused.into_iter().flatten().next() {
            cx.report(
                &place,
                &format!("is {what}, but the profile has no template"),
                &["try adding a [[template]]".into()],
            );
        }
        return None;
    }
    different(pools.iter().map(|pool| pool.name.as_ref()), "pool", cx);
    different(templates.iter().map(|(_, template)| template.name.as_ref()), "template", cx);
    let mut flows = common(shared, ports, cx);
    flows.pools = pools.into_iter().filter_map(|pool| a_pool(pool, cx)).collect();
    for (number, template) in templates {
        let template = a_template(number, template, &mut flows, cx);
        flows.templates.extend(template);
    }
    Some(flows)
}

/// Reports keys that have no effect when the conversations of a capture are played.
fn only_plays(
    shared: &FlowsTable,
    (pool, templates): (Option<&Place>, &[(usize, TemplateTable)]),
    cx: &mut Reader<'_>,
) {
    let template = templates.first().map(|(_, template)| &template.place);
    for (place, what) in [(pool, "a [[pool]]"), (template, "a [[template]]")] {
        if let Some(place) = place {
            cx.report(
                place,
                &format!("is {what}, but [flows] plays a capture"),
                &["try two profiles".into()],
            );
        }
    }
    for key in [
        "cps",
        "active",
        "bandwidth",
        "ramp_up",
        "hold",
        "ramp_down",
        "active_limit",
        "max_delay",
        "pair",
    ] {
        if shared.given.has(key) {
            let text = format!("has {key:?}, which is for templates, but plays a capture");
            let hint = "try cps, multiplier or at_once of [flows.replay] for the speed";
            cx.report(&shared.place, &text, &[hint.into()]);
        }
    }
}

impl Read for Conversations {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let mut table = ConversationsTable::read(node, cx)?;
        let place = table.place.clone();
        cx.need(&place, &table.given, "capture", r#"capture = "file.pcap""#)?;
        let top = table.topspeed.as_ref().is_some_and(|top| top.value);
        let several = [table.multiplier.is_some(), table.cps.is_some(), top];
        if several.into_iter().filter(|given| *given).count() > 1 {
            cx.report(&place, "has several of multiplier, cps and topspeed, expected one", &[]);
        }
        if let Some(Placed { value, place }) = &table.multiplier
            && !(*value > 0.0 && *value <= 1e9)
        {
            let hint = "expected a number above 0: try 2.5";
            cx.report(place, &format!("= {value} is not a factor"), &[hint.into()]);
        }
        let begin = Begin::taken(&mut table).unwrap_or_default();
        let made = Self { begin, at: cx.at(place.start), ..table.made() };
        Some(Self { at_once: made.at_once.map(|most| most.max(1)), ..made })
    }
    fn schema() -> Json {
        ConversationsTable::schema()
    }
}

impl Emit for Conversations {
    fn emit(&self) -> Option<Json> {
        Some(self.written(|key| self.begin.key(key)))
    }
}

fn different<'a>(
    names: impl Iterator<Item = Option<&'a Placed<String>>>,
    what: &str,
    cx: &mut Reader<'_>,
) {
    let mut known: Vec<&str> = Vec::new();
    for Placed { value: name, place } in names.flatten() {
        if known.contains(&name.as_str()) {
            cx.report(place, &format!("= {name:?} is already the name of another {what}"), &[]);
        }
        known.push(name);
    }
}

fn a_pool(mut table: PoolTable, cx: &mut Reader<'_>) -> Option<Pool> {
    cx.need(&table.place, &table.given, "name", r#"name = "clients""#)?;
    cx.need(&table.place, &table.given, "addresses", r#"addresses = "16.0.0.1-16.0.0.254""#)?;
    (table.name.is_some() && table.addresses.is_some()).then_some(())?;
    Some(Pool { at: cx.at(table.place.start), ..table.made() })
}

/// The settings that all templates share.
fn common(table: Option<Placed<FlowsTable>>, ports: &[Port], cx: &mut Reader<'_>) -> Flows {
    let both = (Some(0), (ports.len() > 1).then_some(1));
    let Some(Placed { value: mut table, .. }) = table else {
        let (clients, servers) = both;
        return Flows { clients, servers, ..Flows::default() };
    };
    let place = table.place.clone();
    let (clients, servers) = match table.given.has("clients") || table.given.has("servers") {
        true => (
            table.clients.as_ref().and_then(|name| port(name, ports, cx)),
            table.servers.as_ref().and_then(|name| port(name, ports, cx)),
        ),
        false => both,
    };
    let targets = [table.cps.is_some(), table.active.is_some(), table.bandwidth.is_some()];
    if targets.into_iter().filter(|given| *given).count() > 1 {
        cx.report(&place, "has several of cps, active and bandwidth, expected one", &[]);
    }
    if let Some(Placed { value, place }) = &table.bandwidth
        && (value.is_zero() || !matches!(value.unit, RateUnit::BpsL2))
    {
        cx.report(
            place,
            &format!("= {value} is not a bandwidth in bits per second"),
            &[r#"try "100 Mbps""#.into()],
        );
    }
    if let (Some(down), None) = (&table.ramp_down, &table.hold) {
        cx.report(
            &down.place,
            "never starts: the steady time before it has no end",
            &[r#"try hold = "10 s""#.into()],
        );
    }
    let pairs = pairs(&mut table, [clients, servers], ports, cx);
    Flows {
        clients,
        servers,
        pairs,
        target: Target::taken(&mut table),
        ramp: Ramp {
            up: table.ramp_up.take().map_or(Nanos::ZERO, |up| up.value),
            hold: table.hold.take().map(|hold| hold.value),
            down: table.ramp_down.take().map_or(Nanos::ZERO, |down| down.value),
        },
        ..table.made()
    }
}

/// The further pairs of ports. `first` are the ports of the first one.
fn pairs(
    table: &mut FlowsTable,
    first: [Option<usize>; 2],
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Vec<PortPair> {
    let Some(Placed { value: tables, place }) = table.pair.take() else { return Vec::new() };
    for key in ["cps", "active", "bandwidth", "limit", "active_limit"] {
        if table.given.has(key) {
            let text = format!("cannot be combined with {key}, which is for one pair of ports");
            cx.report(&place, &text, &["try cps, users and limit of each template".into()]);
        }
    }
    let mut used: Vec<usize> = first.into_iter().flatten().collect();
    let mut pairs = Vec::new();
    for mut table in tables {
        if !table.given.has("clients") && !table.given.has("servers") {
            let hint = r#"try clients = "C", servers = "D""#;
            cx.report(&table.place, "has no port, expected clients or servers", &[hint.into()]);
        }
        let ends = [table.clients.take(), table.servers.take()];
        let ends = ends.map(|name| Some((port(name.as_ref()?, ports, cx)?, name?)));
        for (port, name) in ends.iter().flatten() {
            if used.contains(port) {
                let text = format!("= {:?} is the port of another pair", name.value);
                cx.report(&name.place, &text, &["try another port of [ports]".into()]);
            }
        }
        let [clients, servers] = ends.map(|end| Some(end?.0));
        used.extend(clients.into_iter().chain(servers));
        pairs.push(PortPair { clients, servers, ..table.made() });
    }
    pairs
}

pub(super) fn port(name: &Placed<String>, ports: &[Port], cx: &mut Reader<'_>) -> Option<usize> {
    let known = || ports.iter().map(|port| port.name.as_str());
    let index = known().position(|port| port == name.value);
    if index.is_none() {
        let hints = [
            suggest(&name.value, known()),
            format!("or add under [ports]: {} = \"loop:0\"", name.value),
        ];
        cx.report(&name.place, &format!("= {:?} is not among [ports]", name.value), &hints);
    }
    index
}

/// The clients' port and an optional port for the servers, from the keys `port` and `port2` of the
/// table at `place`. `given` has the keys of that table.
pub(super) fn two_ports(
    port: &Option<Placed<String>>,
    port2: &Option<Placed<String>>,
    (given, place): (&Given, &Place),
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> (Option<usize>, Option<usize>) {
    let first = match (port, ports) {
        (Some(name), _) => self::port(name, ports, cx),
        (None, [_]) => Some(0),
        (None, _) if given.has("port") => None,
        (None, _) => {
            let hint = ports
                .first()
                .map_or("port = \"A\"".into(), |port| format!("port = {:?}", port.name));
            cx.report(
                place,
                "has no port, and [ports] does not have exactly one",
                &[format!("try {hint}")],
            );
            None
        }
    };
    let second = port2.as_ref().and_then(|name| self::port(name, ports, cx));
    if let (Some(name), true) = (port2, first.is_some() && first == second) {
        cx.report(
            &name.place,
            "is the same as port",
            &["try leaving port2 out: then both sides use port".into()],
        );
    }
    (first, second)
}

impl Read for Network {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let mut table = NetworkTable::read(node, cx)?;
        if table.gateway.is_some() && table.next_hop.is_some() {
            cx.report(&table.place, "has both gateway and next_hop, expected one of them", &[]);
        }
        Some(table.made())
    }
    fn schema() -> Json {
        NetworkTable::schema()
    }
}

impl Read for Interface {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let mut table = InterfaceTable::read(node, cx)?;
        if table.given.has("addresses") == table.given.has("peers") {
            cx.report(&table.place, "expected either `addresses` or `peers`", &[]);
        }
        Some(table.made())
    }
    fn schema() -> Json {
        InterfaceTable::schema()
    }
}

impl Emit for Vec<Interface> {
    fn emit(&self) -> Option<Json> {
        Some(self.iter().map(|one| one.written(|_| None)).collect())
    }
}

impl Emit for Network {
    fn emit(&self) -> Option<Json> {
        Some(self.written(|_| None))
    }
}

fn a_template(
    number: usize,
    mut table: TemplateTable,
    flows: &mut Flows,
    cx: &mut Reader<'_>,
) -> Option<Template> {
    let at = cx.at(table.place.start);
    let name = table
        .name
        .as_ref()
        .map_or_else(|| format!("template {}", number + 1), |name| name.value.clone());
    let exchange = exchange(&table, cx);
    let play = table.play.as_ref().map_or(Play::default(), |play| play.value);
    let pair = table.pair.as_ref().map_or(1, |pair| pair.value.into());
    if let (Some(given), None) = (&table.pair, flows.pair(pair)) {
        let most = 1 + flows.pairs.len();
        let text = format!("= {pair}, but [flows] has {most} pairs of ports");
        cx.report(&given.place, &text, &["try adding a [[flows.pair]]".into()]);
    }
    let (of_clients, of_servers) = flows.ends(pair);
    for (only, port, key) in
        [(Play::Clients, of_clients, "clients"), (Play::Servers, of_servers, "servers")]
    {
        if let (Some(given), None) = (table.play.as_ref().filter(|play| play.value == only), port) {
            let text = format!("= {key:?}, but [flows] has no port for them");
            cx.report(&given.place, &text, &[format!("add to [flows]: {key} = \"A\"")]);
        }
    }
    let stages = stages(&table, flows, cx);
    let arrival = arrival(&mut table, &stages, (flows, of_clients.is_some()), play, cx);
    let servers = pool(&table.place, "servers", table.servers.take(), &name, flows, cx);
    let clients = match (table.clients.take(), play) {
        (None, Play::Servers) => servers.map(|servers| external_clients(servers, &name, at, flows)),
        (given, _) => pool(&table.place, "clients", given, &name, flows, cx),
    };
    let programs = matches!(exchange, Some(FlowContent::Programs { .. }));
    if programs && !table.given.has("listen") {
        cx.need(&table.place, &table.given, "listen", "listen = 80");
    }
    let mut rest = table.made();
    // gRPC has no other transport.
    if matches!(&exchange, Some(FlowContent::App { app, .. }) if app.text == "grpc") {
        rest.http.get_or_insert_default();
    }
    Some(Template {
        name,
        clients: clients?,
        servers: servers?,
        content: exchange?,
        arrival: arrival?,
        stages,
        at,
        ..rest
    })
}

/// A pool for external clients, with the address family of the pool `servers`. For hosts, see
/// [`external_clients_of_hosts`].
fn external_clients(servers: usize, name: &str, at: At, flows: &mut Flows) -> usize {
    let servers = &flows.pools[servers];
    let is_ipv6 = |one: &Located| one.text.contains(':') && servers.hosts().is_none();
    let address = if servers.addresses.first().is_some_and(is_ipv6) { "::1" } else { EXTERNAL };
    flows.pools.push(Pool {
        name: format!("{name} clients"),
        addresses: vec![Located { text: address.into(), at }],
        at,
        ..Pool::default()
    });
    flows.pools.len() - 1
}

/// In place of the addresses of external clients over IPv4.
const EXTERNAL: &str = "0.0.0.1";

/// Gives external clients the address family of servers that are hosts, which were read later.
pub(super) fn external_clients_of_hosts(flows: &mut Flows, groups: &[HostGroup]) {
    for template in &flows.templates {
        let hosts = flows.pools.get(template.servers).and_then(Pool::hosts);
        let group = hosts.and_then(|(name, _)| groups.iter().find(|group| group.name == name));
        if group.is_some_and(|group| group.ipv4 == HostAddress::None)
            && let Some(Pool { addresses, .. }) = flows.pools.get_mut(template.clients)
            && let [Located { text, .. }] = &mut addresses[..]
            && text == EXTERNAL
        {
            *text = "::1".into();
        }
    }
}

fn exchange(table: &TemplateTable, cx: &mut Reader<'_>) -> Option<FlowContent> {
    let has = |key: &str| table.given.has(key);
    let programs = has("client") || has("server");
    let kinds = [("app", has("app")), ("client and server", programs), ("capture", has("capture"))];
    let given: Vec<&str> =
        kinds.iter().filter(|(_, given)| *given).map(|(kind, _)| *kind).collect();
    if given.len() != 1 {
        let found = if given.is_empty() { "no exchange".to_owned() } else { given.join(", and ") };
        let hint = "expected app, or client and server, or capture: try app = \"http\"";
        cx.report(&table.place, &format!("has {found}"), &[hint.into()]);
        return None;
    }
    let stray = |key: &'static str, needs: &str, cx: &mut Reader<'_>| {
        if has(key) && given[0] != needs {
            let text = format!("has {key:?}, which has no effect without {needs}");
            cx.report(&table.place, &text, &[]);
        }
    };
    stray("options", "app", cx);
    stray("messages", "client and server", cx);
    stray("delays", "capture", cx);
    let texts = |texts: &Option<Placed<TextTable>>| {
        texts.as_ref().map_or_else(Vec::new, |t| t.value.0.clone())
    };
    let options = table.options.as_ref().map_or_else(Vec::new, |t| t.value.0.clone());
    let lines = |lines: &Option<Placed<Vec<Located>>>| {
        lines.as_ref().map_or_else(Vec::new, |l| l.value.clone())
    };
    if let Some(app) = &table.app {
        return Some(FlowContent::App { app: app.value.clone(), options });
    }
    if programs {
        let (client, server) = (lines(&table.client), lines(&table.server));
        if client.is_empty() && server.is_empty() {
            cx.report(
                &table.place,
                "has no instructions, neither for the client nor for the server",
                &[],
            );
            return None;
        }
        return Some(FlowContent::Programs { client, server, messages: texts(&table.messages) });
    }
    let Placed { value: Located { text, at }, place } = table.capture.as_ref()?;
    let (path, number) = numbered(text);
    let wrong = format!("= {text:?} has no conversation number after #");
    let number =
        cx.must(place, number, &wrong, "conversations are counted from 1: try \"file.pcap#1\"")?;
    let delays = table.delays.as_ref().map_or(Delays::default(), |delays| delays.value);
    Some(FlowContent::Capture { path: Located { text: cx.resolve(path), at: *at }, number, delays })
}

/// The stages of a template's load. Empty if they are missing or wrong.
fn stages(table: &TemplateTable, flows: &Flows, cx: &mut Reader<'_>) -> Vec<Stage<f64>> {
    let Some(Placed { value: tables, place }) = &table.stages else { return Vec::new() };
    if table.given.has("weight") {
        let hint = "try cps or users instead of weight, or ramp_up and hold in [flows]";
        cx.report(
            place,
            "cannot be combined with weight: the load of the template is a share of [flows]",
            &[hint.into()],
        );
        return Vec::new();
    }
    if flows.ramp != Ramp::default() {
        let hint = "try stages in each template, or ramp_up, hold and ramp_down in [flows] alone";
        cx.report(
            place,
            "cannot be combined with ramp_up or hold of [flows]: both shape the load",
            &[hint.into()],
        );
        return Vec::new();
    }
    let full = match (&table.users, &table.cps) {
        (Some(users), _) => Some(("users", u32::from(users.value).into())),
        (None, Some(cps)) => Some(("cps", cps.value.0)),
        (None, None) => None,
    };
    let rows = tables.iter().map(|stage| Row {
        place: &stage.place,
        lasts: stage.duration.as_ref(),
        to: stage.to.as_ref().map(|to| (to.value.0, &to.place)),
    });
    let levels = Levels { full, zero: 0.0, example: "500", number: |to: f64| to };
    levels.read(place, rows, cx)
}

fn arrival(
    table: &mut TemplateTable,
    stages: &[Stage<f64>],
    (flows, has_clients): (&Flows, bool),
    play: Play,
    cx: &mut Reader<'_>,
) -> Option<Arrival> {
    let kinds = [table.given.has("cps"), table.given.has("weight"), table.given.has("users")];
    if let Some(called) = table.called.as_ref().filter(|called| called.value) {
        let others = [
            "cps", "weight", "users", "think", "spacing", "stages", "limit", "start", "duration",
            "after",
        ];
        let mut given: Vec<&str> = others.into_iter().filter(|key| table.given.has(key)).collect();
        if play == Play::Servers {
            given.push("play = \"servers\"");
        }
        if !given.is_empty() {
            let text = format!(
                "has no effect beside {}: other flows begin those of the template, whenever they do",
                given.join(", ")
            );
            let hint = format!("try without called, or without {}", given.join(", "));
            cx.report(&called.place, &text, &[hint]);
            return None;
        }
        if table.app.as_ref().is_some_and(|app| app.value.text == "mix") {
            let hint = "try one application";
            cx.report(
                &called.place,
                "is for one kind of flows, and a mix has several",
                &[hint.into()],
            );
            return None;
        }
        return Some(Arrival::Called);
    }
    if play == Play::Servers {
        if kinds.contains(&true) {
            let hint = "try without cps, weight or users, or without play = \"servers\"";
            cx.report(&table.place, "plays only servers, which begin no flows", &[hint.into()]);
        }
        return Some(Arrival::None);
    }
    if kinds.into_iter().filter(|given| *given).count() > 1 {
        cx.report(&table.place, "has several of cps, weight and users, expected one", &[]);
        return None;
    }
    if let (Some(think), None) = (&table.think, &table.users) {
        cx.report(&think.place, "needs users", &["try users = 100".into()]);
    }
    if let (Some(weight), None) = (&table.weight, flows.target) {
        let hint =
            r#"try adding to [flows]: cps = "10k", or active = 1000, or bandwidth = "1 Gbps""#;
        cx.report(&weight.place, "needs a load in [flows]", &[hint.into()]);
    }
    let spacing = table.spacing.as_ref().map(|spacing| spacing.value).unwrap_or_default();
    match Arrival::taken(table) {
        Some(arrival) => Some(arrival),
        None if kinds.contains(&true) => None,
        None if !stages.is_empty() => {
            let cps = stages.iter().map(|stage| stage.to).fold(0.0, f64::max);
            (cps > 0.0).then_some(Arrival::Cps { cps, spacing })
        }
        // With external clients, there are only servers, which have no arrivals.
        None if !has_clients => Some(Arrival::None),
        None => {
            cx.need(&table.place, &table.given, "cps", "cps = 1000, or weight = 1, or users = 100");
            None
        }
    }
}

/// The index of a pool: one that is named, or a new one with the given addresses.
fn pool(
    template: &Place,
    key: &'static str,
    given: Option<Placed<OneOrMore>>,
    name: &str,
    flows: &mut Flows,
    cx: &mut Reader<'_>,
) -> Option<usize> {
    let Some(Placed { value: OneOrMore(texts), place }) = given else {
        let example = if key == "clients" { "16.0.0.1-16.0.0.254" } else { "48.0.0.1" };
        cx.report(
            template,
            &format!("has no {key:?}"),
            &[format!("try {key} = {example:?}, or the name of a pool")],
        );
        return None;
    };
    if let [one] = &texts[..] {
        let index = flows.pools.iter().position(|pool| pool.name == one.text);
        // Text that is no pool's name is an address, or a host name that is resolved later.
        let address = one.text.contains(['.', ':']);
        if index.is_none() && !address {
            let hint = suggest(&one.text, flows.pools.iter().map(|pool| pool.name.as_str()));
            let hints = [
                hint,
                "or try addresses, or a host: \"16.0.0.1-16.0.0.254\", \"www.example.net\"".into(),
            ];
            cx.report(&place, &format!("= {:?} is not a pool", one.text), &hints);
        }
        if index.is_some() || !address {
            return index;
        }
    }
    let at = cx.at(place.start);
    flows.pools.push(Pool {
        name: format!("{name} {key}"),
        addresses: texts,
        at,
        ..Pool::default()
    });
    Some(flows.pools.len() - 1)
}
