//! Any packets of PPPoE and PPP to a client and to an access concentrator: nothing panics, no timer
//! is in the past, a client waits for something or has a result, and a server has at most one
//! session for each client. Input: records of an octet of time, an octet that selects the receiver
//! and the form of the packet, a length, and the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_host::{
    LCP, PADI, PADO, PADR, PADS, PppAuth, PppSettings, PppoeClient, PppoeClientSettings,
    PppoeContext, PppoePacket, PppoeServer, PppoeServerContext, PppoeServerSettings, PppoeState,
    PppoeStep,
};
use squall_units::{MacAddr, Nanos};

const CLIENT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fuzz_target!(|data: &[u8]| {
    let ppp = PppSettings {
        auth: PppAuth::Any,
        identity: "user{}".into(),
        password: "secret".into(),
        ipv6: true,
        name_servers: true,
        ..PppSettings::default()
    };
    let settings = PppoeClientSettings { ppp: ppp.clone(), ..PppoeClientSettings::default() };
    let of_server = PppoeServerSettings {
        ac_name: "ac".into(),
        service: String::new(),
        address: [10, 0, 0, 1].into(),
        first: [10, 0, 1, 0].into(),
        count: 3,
        ppp,
    };
    let (mut client, mut server) = (PppoeClient::default(), PppoeServer::new(7));
    let (mut now, mut chance, mut rest) = (Nanos(0), 1u64, data);
    // Frames that are on the way: whether to the server, whether of the discovery, octets.
    let mut wire: Vec<(bool, bool, Vec<u8>)> = Vec::new();
    let queue = |wire: &mut Vec<_>, to_server, step: PppoeStep| {
        wire.extend(step.send.into_iter().map(|of| (to_server, of.kind == 0x8863, of.octets)));
    };
    let cx = PppoeContext { now, chance, number: 7, settings: &settings };
    queue(&mut wire, true, client.start(&cx));
    while let [time, form, len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        now = Nanos(now.0 + u64::from(*time) * 100_000_000);
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(now.0 | 1);
        let cx = PppoeContext { now, chance, number: 7, settings: &settings };
        let at = PppoeServerContext { now, chance, settings: &of_server };
        if client.due().is_some_and(|due| due <= now) {
            queue(&mut wire, true, client.timer(&cx));
        }
        queue(&mut wire, false, server.timer(&at, 10));
        let packet = |code, session, payload: &[u8]| {
            let mut out = Vec::new();
            PppoePacket { code, session, payload }.write(&mut out);
            out
        };
        let session = client.session().1;
        let to_server = form & 1 != 0;
        match form >> 1 & 7 {
            // The true answers, so that the later states are reached.
            0 => {
                for (to_server, discovery, octets) in std::mem::take(&mut wire).into_iter().take(20)
                {
                    let step = match (to_server, discovery) {
                        (true, true) => server.receive_discovery(&at, CLIENT, &octets),
                        (true, false) => server.receive_session(&at, CLIENT, &octets).0,
                        (false, true) => client.receive_discovery(&cx, SERVER, &octets),
                        (false, false) => client.receive_session(&cx, SERVER, &octets).0,
                    };
                    queue(&mut wire, !to_server, step);
                }
            }
            1 => wire.push((to_server, true, octets.to_vec())),
            2 => wire.push((to_server, false, packet(0, session, octets))),
            3 => {
                let lcp = [&LCP.to_be_bytes(), octets].concat();
                wire.push((to_server, false, packet(0, session, &lcp)));
            }
            kind => {
                let code = [PADI, PADO, PADR, PADS][usize::from(kind & 3)];
                wire.push((to_server, true, packet(code, session, octets)));
            }
        }
        wire.truncate(64);
        let due = client.due();
        let ended = matches!(client.state(), PppoeState::Failed | PppoeState::Closed);
        assert!(
            due.is_some() || ended || client.state() == PppoeState::Open,
            "it waits for nothing"
        );
        assert!(server.sessions().count() <= 1, "one client has one session");
    }
});
