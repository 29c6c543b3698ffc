//! Attacks as text: the table, and the values of [`crate::Attack`] that are made from it.

use squall_units::Nanos;

use super::{
    flows::{File, OneOrMore, PerSecond, TextTable, two_ports},
    read::{Bounded, Count, Placed, Reader, table, words},
};
use crate::{At, AttackOf, AttackPace, AttackRules, IdsEngine, Located, NearMiss, Network, Port};

table! {
    /// Attacks that begin one after the other, made from `rules` or from a `template`.
    AttackTable makes
    /// Attacks that begin one after the other.
    Attack {
        name: String = String::new(),
        what: AttackOf = AttackOf::default(),
        /// Index into [`crate::Profile::ports`]: the clients' port; without `port2`, the servers'
        /// as well.
        port: usize = 0,
        /// The servers' port.
        port2: Option<usize> = None,
        /// Conversations use Squall's own TCP and UDP where possible; otherwise all frames are sent
        /// as made.
        live: bool = false,
        pace: AttackPace = AttackPace::default(),
        /// 4 or 6, for rules that leave it open; `None`: 4.
        family: Option<u8> = None,
        at: At = At::default(),
    } from {
        /// Unique; reports use it. Default "attack 1" and so on.
        name: String,
        /// Files of Snort 2, Snort 3 or Suricata rules, or folders of such files, relative to the
        /// profile.
        rules: OneOrMore,
        /// A suricata.yaml or snort.conf, whose variables replace the usual ones. Relative to the
        /// profile.
        config: File,
        /// Variables of rules: { HOME_NET = "[10.0.0.0/8,192.168.1.0/24]", HTTP_PORTS = "[80,8080]"
        /// }.
        variables: TextTable,
        /// Only the rules with these identifiers: "1234", "1000-2000", or a list.
        sid: OneOrMore,
        /// Only the rules of these classes.
        classtype: OneOrMore,
        /// Only the rules whose messages match this expression: "(?i)trojan".
        msg: Located,
        /// The engine whose alerts are predicted: "suricata7", "suricata8", "snort2" or "snort3".
        /// Rules that it does not load are refused. Default: rules of all engines are converted,
        /// and match as in Suricata 8.
        engine: IdsEngine,
        /// Instead of rules: the name of a scan, a flood, a brute force attack or a beacon. `squall
        /// attack --templates` lists them.
        template: Located,
        /// Options of the template.
        options: TextTable,
        /// A name from [ports], for the clients, and for the servers if there is no `port2`. May be
        /// left out if there is only one port.
        port: String,
        /// A name from [ports], for the servers.
        port2: String,
        /// true: Squall's own TCP/UDP stack carries out the conversations on both ports, or if
        /// `clients` are hosts, without `port2` with servers outside of Squall; all other attacks
        /// leave as frames. false: everything leaves as frames, made before the run. Default true with
        /// `port2` if neither `clients` nor `servers` are hosts, otherwise false.
        live: bool,
        /// The number of attacks that begin per second. Default 100.
        rate: PerSecond,
        /// Instead of a rate: the share of attacks in all octets, with a `background`: "1 %".
        share: Located,
        /// When the first attack begins, after the start of the run, or after the end of the source
        /// that they come `after`. Default 0.
        start: Nanos => Nanos,
        /// No attack begins after this time from the start.
        duration: Nanos => Option<Nanos>,
        /// They begin when the stream, replay, template or attack of this name has ended. Not for
        /// live attacks.
        after: Located => Option<Located>,
        /// How many times to send all of them, each time from other addresses. Default 1.
        repeat: Bounded<1, { u64::MAX }> => u64 = 1,
        /// true: in a random order that depends on the seed. Default false: in the order of the
        /// rules.
        shuffle: bool => bool,
        /// The number of different attacks for each rule. Default 1.
        samples: Bounded<1, 10_000> => u32 = 1,
        /// true: one attack for each branch of the expressions of each rule. Default false.
        every_branch: bool => bool,
        /// "also": each attack is followed by a near miss, a twin that differs by one octet and
        /// must not raise the alert; "only": near misses alone. Default "no".
        near_miss: NearMiss => NearMiss,
        /// Techniques that make attacks harder to detect: "segments=8", "fragments=16", or a list.
        /// `squall attack --evasions` lists them.
        evasion: OneOrMore => Vec<Located>,
        /// "host:NAME": the clients are the hosts of this group, which is on `port`. Each attack
        /// comes from the next host that has an address, with its MAC address and VLAN, and leaves
        /// to the MAC address of its gateway, or in its session of PPPoE. Default: addresses that
        /// suit the rules.
        clients: Located => Option<Located>,
        /// "host:NAME": likewise, the servers are the hosts of this group, which is on `port2`, or on
        /// `port` if there is none. Not for live attacks.
        servers: Located => Option<Located>,
        /// Addresses of hosts inside the protected network: "10.0.0.1-10.0.0.9", or a list.
        /// Default: from the variables of the rules.
        inside: OneOrMore => Vec<Located>,
        /// Addresses of hosts outside. Default: 198.18.0.0/15 (RFC 2544).
        outside: OneOrMore => Vec<Located>,
        /// 4 or 6: the address family of attacks whose rules leave it open. Default 4.
        family: Count,
        /// Encapsulation of packets, from the outside in: "vlan 7", "gre FROM TO". For
        /// conversations of a live run, use the networks.
        wrap: OneOrMore => Vec<Located>,
        /// In a live run: addresses and encapsulation of the clients' packets.
        client_network: Network => Network,
        /// In a live run: addresses and encapsulation of the servers' packets.
        server_network: Network => Network,
        /// The time between the frames of an attack. Default 100 us.
        gap: Nanos => Option<Nanos>,
        /// A capture without attacks, sent at the same time with its own timing, repeated until the
        /// attacks end. Relative to the profile.
        background: File => Option<Located>,
        /// false: the attacks are ignored. Default true.
        enabled: bool,
    }
}

words!(NearMiss, "a choice of near misses": "no" => No, "also" => Also, "only" => Only);
words!(
    IdsEngine,
    "an engine":
    "suricata7" => Suricata7,
    "suricata8" => Suricata8,
    "snort2" => Snort2,
    "snort3" => Snort3,
);

pub(super) fn attacks(
    tables: Option<Placed<Vec<AttackTable>>>,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Vec<Attack> {
    let tables = tables.map_or_else(Vec::new, |tables| tables.value);
    let mut attacks: Vec<Attack> = Vec::new();
    for (number, table) in tables.into_iter().enumerate() {
        if table.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            continue;
        }
        let name_place = table.name.as_ref().map(|name| name.place.clone());
        let Some(attack) = attack(number, table, ports, cx) else { continue };
        if let (Some(place), true) =
            (name_place, attacks.iter().any(|before| before.name == attack.name))
        {
            cx.report(
                &place,
                &format!("= {:?} is already the name of another attack", attack.name),
                &[],
            );
        }
        attacks.push(attack);
    }
    attacks
}

fn attack(
    number: usize,
    mut table: AttackTable,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Option<Attack> {
    let at = cx.at(table.place.start);
    let texts =
        |texts: Option<Placed<OneOrMore>>| texts.map_or_else(Vec::new, |texts| texts.value.0);
    let pairs =
        |pairs: Option<Placed<TextTable>>| pairs.map_or_else(Vec::new, |pairs| pairs.value.0);
    for (key, of, needs) in [
        ("config", table.config.is_some(), "rules"),
        ("variables", table.variables.is_some(), "rules"),
        ("sid", table.sid.is_some(), "rules"),
        ("classtype", table.classtype.is_some(), "rules"),
        ("msg", table.msg.is_some(), "rules"),
        ("engine", table.engine.is_some(), "rules"),
        ("options", table.options.is_some(), "template"),
    ] {
        if of && !table.given.has(needs) {
            cx.report(
                &table.place,
                &format!("has {key:?}, which has no effect without {needs}"),
                &[],
            );
        }
    }
    let file =
        |Located { text, at }: Located, cx: &Reader<'_>| Located { text: cx.resolve(&text), at };
    let what = match (table.rules.take(), table.template.take()) {
        (Some(rules), None) => Some(AttackOf::Rules(AttackRules {
            files: rules.value.0.into_iter().map(|given| file(given, cx)).collect(),
            config: table.config.take().map(|config| config.value.0),
            variables: pairs(table.variables.take()),
            sids: texts(table.sid.take()),
            classtypes: texts(table.classtype.take()),
            msg: table.msg.take().map(|msg| msg.value),
            engine: table.engine.take().map(|engine| engine.value),
        })),
        (None, Some(name)) => {
            Some(AttackOf::Template { name: name.value, options: pairs(table.options.take()) })
        }
        (rules, _) => {
            let found = if rules.is_some() {
                "both rules and template"
            } else {
                "neither rules nor template"
            };
            cx.report(
                &table.place,
                &format!("has {found}"),
                &[r#"try rules = "local.rules""#.into()],
            );
            None
        }
    };
    let (clients, port2) =
        two_ports(&table.port, &table.port2, (&table.given, &table.place), ports, cx);
    for hosts in [&table.clients, &table.servers].into_iter().flatten() {
        if hosts.value.host_group().is_none() {
            let text = format!("= {:?} is not a group of hosts", hosts.value.text);
            let hint = "expected \"host:NAME\"; addresses are those of inside and outside";
            cx.report(&hosts.place, &text, &[hint.into()]);
        }
    }
    let has_hosts = table.clients.is_some() || table.servers.is_some();
    let live = table.live.as_ref().map_or(port2.is_some() && !has_hosts, |live| live.value);
    if let (Some(given), true, None) = (&table.live, live, &table.port2)
        && table.clients.is_none()
    {
        let hint = "or clients = \"host:NAME\": servers of others then answer";
        cx.report(&given.place, "= true needs port2, the port of the servers", &[hint.into()]);
    }
    let pace = match (table.rate.take(), table.share.take()) {
        (Some(rate), None) => Some(AttackPace::PerSecond(rate.value.0)),
        (None, Some(share)) => {
            let text = &share.value.text;
            let percent = text.trim().strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok());
            let fits =
                percent.filter(|n| *n > 0.0 && *n < 100.0).map(|n| AttackPace::Share(n / 100.0));
            cx.must(
                &share.place,
                fits,
                &format!("= {text:?} is not a share"),
                "expected more than 0 and less than 100: try \"1 %\"",
            )
        }
        (Some(_), Some(share)) => {
            cx.report(&share.place, "cannot be combined with rate: expected one of them", &[]);
            None
        }
        (None, None) => Some(AttackPace::default()),
    };
    if matches!(pace, Some(AttackPace::Share(_))) && table.background.is_none() {
        cx.report(&table.place, "has a share, but no background", &["try rate = 10".into()]);
    }
    let family = match &table.family {
        Some(Placed { value: Count(n), place }) => {
            let fits = u8::try_from(*n).ok().filter(|n| matches!(n, 4 | 6));
            cx.must(place, fits, &format!("= {n} is not an IP version"), "expected 4 or 6")
        }
        None => None,
    };
    let name =
        table.name.take().map_or_else(|| format!("attack {}", number + 1), |name| name.value);
    Some(Attack {
        name,
        what: what?,
        port: clients?,
        port2,
        live,
        pace: pace?,
        family,
        at,
        ..table.made()
    })
}
