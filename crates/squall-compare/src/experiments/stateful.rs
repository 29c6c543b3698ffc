//! Stateful traffic from one core: Squall's clients against nginx, and against Squall's own server.
//! Connections are counted on the server's side: by the kernel's TCP for nginx, otherwise by the
//! other process.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value as Json;
use squall_port_linux::{child, interface_counters, set_gro};
use squall_units::Cannot;

use super::{
    Run,
    model::{Axis, Figure, Table, Unit, Value},
};
use crate::{
    generators::{
        GeneratorRound,
        run::Place,
        wire::{self, ADDRESSES, MACS},
    },
    process::Program,
    tools::Tool,
    watch,
};

/// Lab of the runs.
pub struct Lab {
    pub place: Place,
    pub server_cpu: Option<u32>,
    /// Whether the interfaces of the kernel have addresses.
    pub addressed: Result<(), String>,
}

/// Addresses of Squall's clients, in one network to which the kernel has a route.
const CLIENTS: &str = "198.18.1.64-198.18.1.113";
const CLIENTS_NETWORK: &str = "198.18.1.64/26";
/// Address of Squall's server; not assigned to any interface of the kernel.
const SERVER: &str = "198.18.2.100";
const TCP_PORT: u16 = 8080;
/// Octets of a response body.
const BODY: usize = 100;
/// Maximum wait for a server to start, and for clients and server to end and report.
const START: Duration = Duration::from_secs(5);
const END: Duration = Duration::from_secs(10);

/// One load on one server.
#[derive(Clone, Debug, Default, PartialEq)]
struct Load {
    server: &'static str,
    /// TRex's multiplier m: the requested connections per second.
    m: u32,
    client: Client,
    /// Connections counted by the server's side in the whole run.
    accepted: u64,
    /// Frames per second at the clients' interface, in both directions together.
    pps: f64,
    memory_octets: u64,
    cpus: f64,
}

/// Report of the clients.
#[derive(Clone, Debug, Default, PartialEq)]
struct Client {
    cps: f64,
    rps: f64,
    peak_active: f64,
    asked: u64,
    established: u64,
    completed: u64,
}

pub fn measure(run: &mut Run<'_>, lab: &Lab, loads: &[u32]) {
    let to = &lab.place.interfaces[1];
    let _ = set_gro(to, false);
    let routed = lab.addressed.clone().and_then(|()| wire::route_back(to, CLIENTS_NETWORK));
    let mut done = Vec::new();
    for server in ["nginx", "squall"] {
        if let (true, Err(why)) = (server == "nginx", &routed) {
            run.missing("stateful traffic against nginx", why.clone());
            continue;
        }
        for m in loads {
            if run.stopped() {
                break;
            }
            match load(run, lab, server, *m) {
                Ok(load) => {
                    let Client { cps, .. } = load.client;
                    run.progress(&format!("{server}  m {m}:  {cps:.0} connections/s"));
                    done.push(load);
                }
                Err(why) => {
                    run.progress(&format!("{server}  m {m}:  failed: {why}"));
                    run.missing(format!("stateful traffic against {server}"), why);
                    break;
                }
            }
        }
    }
    if !done.is_empty() {
        run.fact("Stateful", format!("HTTP over TCP, a connection per request, {BODY} octets"));
        run.result.tables.push(table(&done));
        run.result.figures.push(figure(&done));
    }
}

fn load(run: &Run<'_>, lab: &Lab, server: &'static str, m: u32) -> Result<Load, String> {
    let Place { interfaces: [from, to], work, cpu, step, .. } = &lab.place;
    let squall = &run.settings.squall;
    let reports = ["server.json", "client.json"].map(|name| work.join(name));
    for report in &reports {
        let _ = fs::remove_file(report);
    }
    let [server_report, client_report] = reports;
    let (address, mut serving) = match server {
        "nginx" => (ADDRESSES[1], nginx(lab.server_cpu, work)?),
        _ => {
            let mut arguments = words("flows serve --quiet --allow-invalid --cores 1");
            arguments.extend([
                format!("--port=af_packet:{to}"),
                format!("--servers={SERVER}"),
                format!("--listen={TCP_PORT}"),
                format!("--body={BODY}"),
                format!("--json={}", server_report.display()),
            ]);
            (SERVER, Program::start(squall, &arguments, lab.server_cpu, work.join("server"))?)
        }
    };
    wait_for_server(server, &serving, to)?;
    let time = Duration::from_nanos(step.0);
    let mut arguments = words("flows http --quiet --allow-invalid --cores 1");
    arguments.extend([
        format!("--url=http://{address}:{TCP_PORT}/"),
        format!("--port=af_packet:{from}"),
        format!("--clients={CLIENTS}"),
        format!("--cps={m}"),
        // Longer than the measurement, which is in the middle of the run.
        format!("--duration={}ms", time.as_millis() + 1000),
        format!("--json={}", client_report.display()),
    ]);
    if server == "nginx" {
        arguments.push(format!("--next-hop={}", MACS[1]));
    }
    let (before, opened) = (lab.place.arrived()?, passive_opens());
    let mut clients = Program::start(squall, &arguments, *cpu, work.join("log"))?;
    lab.place.wait_for_frames(&clients, before, run.stop())?;
    let frames = || {
        let counters = interface_counters(from).map_err(|e| format!("{from}: {e}"))?;
        Ok::<_, String>((Instant::now(), counters.tx_packets + counters.rx_packets))
    };
    let (since, first) = frames()?;
    let round = GeneratorRound::of(watch::seconds(clients.pid(), to, time, run.stop())?);
    let (at, last) = frames()?;
    let pids = child::tree(clients.pid());
    let memory_octets = pids.into_iter().map(child::peak_memory).sum();
    clients.ends_within(END);
    let words = clients.end(END);
    serving.end(END);
    let client = client(&read(&client_report).map_err(|why| format!("{why}: {}", words.trim()))?)
        .ok_or("its report lacks a figure")?;
    let accepted = match server {
        "nginx" => passive_opens().saturating_sub(opened),
        _ => read(&server_report)?
            .pointer("/flows/templates/0/server/tcp/accepts")
            .and_then(Json::as_u64)
            .ok_or("the server's report has no count of connections")?,
    };
    Ok(Load {
        server,
        m,
        client,
        accepted,
        pps: (last - first) as f64 / (at - since).as_secs_f64(),
        memory_octets,
        cpus: round.user_cpus + round.system_cpus,
    })
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Waits until nginx listens on its TCP port, or Squall's server on its interface.
fn wait_for_server(server: &str, program: &Program, interface: &str) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let ready = match server {
            "nginx" => listens(),
            _ => child::has_receiver(interface),
        };
        if ready {
            return Ok(());
        }
        if child::has_ended(program.pid()) || started.elapsed() > START {
            return Err(format!("{server} did not start: {}", program.last_lines()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a socket of this network namespace listens on the TCP port of the server.
fn listens() -> bool {
    let text = fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default();
    let port = format!(":{TCP_PORT:04X}");
    text.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let own = fields.next().is_some_and(|address| address.ends_with(&port));
        // State 0A is LISTEN (include/net/tcp_states.h of Linux).
        own && fields.nth(1) == Some("0A")
    })
}

/// Number of connections that the kernel has accepted in this network namespace.
fn passive_opens() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    passive_opens_of(&text).unwrap_or_default()
}

/// Value of `PassiveOpens`. For each protocol, the file has a line of names and a line of values.
fn passive_opens_of(text: &str) -> Option<u64> {
    let mut tcp = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (tcp.next()?, tcp.next()?);
    let at = names.split(' ').position(|name| name == "PassiveOpens")?;
    values.split(' ').nth(at)?.parse().ok()
}

fn nginx(cpu: Option<u32>, work: &Path) -> Result<Program, String> {
    let nginx = Tool::of_command("nginx", "nginx").map_err(|e| e.to_string())?;
    let program = nginx.find().ok_or("not installed: nginx; try apt-get install nginx-light")?;
    let (www, config) = (work.join("www"), work.join("nginx.conf"));
    let folder = work.display();
    let text = format!(
        "daemon off; worker_processes 1; master_process off; pid {folder}/nginx.pid; error_log \
         {folder}/nginx.log;\nevents {{ worker_connections 8192; }}\nhttp {{ access_log off; \
         client_body_temp_path {folder}/body-temp; proxy_temp_path {folder}/p; \
         fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path \
         {folder}/s;\nserver {{ listen {TCP_PORT} backlog=4096; root {folder}/www; }} }}\n"
    );
    let index = vec![b'x'; BODY];
    let written = fs::create_dir_all(&www)
        .and_then(|()| fs::write(www.join("index.html"), index))
        .and_then(|()| fs::write(&config, text));
    written.map_err(|e| Cannot::write(&config, &e).to_string())?;
    let config = config.display().to_string();
    let arguments =
        ["-p", &folder.to_string(), "-c", &config, "-g", "user root;"].map(str::to_owned);
    Program::start(&program, &arguments, cpu, work.join("server"))
}

fn read(report: &Path) -> Result<Json, String> {
    let text = fs::read_to_string(report).map_err(|e| Cannot::read(report, &e).to_string())?;
    serde_json::from_str(&text).map_err(|e| Cannot::new("read a report", e).to_string())
}

/// Reads the figures from the report of `squall flows http --json`.
fn client(report: &Json) -> Option<Client> {
    let client = report.pointer("/flows/templates/0/client")?;
    let count = |pointer: &str| client.pointer(pointer)?.as_u64();
    let cps = client.pointer("/steady/completed_cps")?.as_f64()?;
    let completed = count("/completed")?;
    let answered = count("/requests/answered").unwrap_or(completed);
    Some(Client {
        cps,
        rps: if completed > 0 { cps * answered as f64 / completed as f64 } else { 0.0 },
        peak_active: count("/peak_active")? as f64,
        asked: count("/asked")?,
        established: count("/established")?,
        completed,
    })
}

fn table(loads: &[Load]) -> Table {
    let mut table = Table::new(
        "stateful",
        "Stateful traffic from one core",
        "CPS: completed connections per second. Drop: flows that were due and were not completed. \
         Accepted: connections that the server's side counted, in percent of those that the \
         clients established; for nginx it is the kernel's counter.",
        &[
            ("Server", Unit::Count),
            ("m", Unit::Number),
            ("CPS", Unit::Number),
            ("Requests/s", Unit::Number),
            ("Packets/s", Unit::Number),
            ("Active flows", Unit::Number),
            ("Drop, %", Unit::Number),
            ("Accepted, %", Unit::Number),
            ("Memory, MB", Unit::Number),
            ("CPU, % of one", Unit::Number),
        ],
    );
    for load in loads {
        let Client { cps, rps, peak_active, asked, established, completed } = load.client;
        let percent = |part: u64, of: u64| -> Value {
            (of > 0).then(|| 100.0 * part as f64 / of as f64).into()
        };
        table.row(vec![
            load.server.into(),
            f64::from(load.m).into(),
            cps.into(),
            rps.into(),
            load.pps.into(),
            peak_active.into(),
            percent(asked.saturating_sub(completed), asked),
            percent(load.accepted, established),
            (load.memory_octets as f64 / 1e6).into(),
            (100.0 * load.cpus).into(),
        ]);
    }
    table
}

fn figure(loads: &[Load]) -> Figure {
    let x = Axis::new("m, connections per second due", Unit::Number);
    let y = Axis::new("connections per second", Unit::Number);
    let mut figure = Figure::lines("stateful", "Connections per second", "from one core", x, y);
    for server in crate::render::in_order(loads.iter().map(|load| load.server)) {
        let of = loads.iter().filter(|load| load.server == server);
        figure.series(&format!("against {server}"), of.map(|l| (f64::from(l.m), l.client.cps)));
    }
    figure
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accepted_connections_are_read_by_their_name() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm ActiveOpens \
                    PassiveOpens\nTcp: 1 7 4711\nUdp: InDatagrams\nUdp: 3\n";
        assert_eq!(passive_opens_of(text), Some(4711));
        assert_eq!(passive_opens_of("Tcp: a\n"), None);
    }

    #[test]
    fn a_load_has_its_drop_and_the_servers_count_in_percent() {
        let report = json!({ "flows": { "templates": [{ "client": {
            "asked": 200, "established": 160, "completed": 150, "peak_active": 9,
            "requests": { "answered": 300 }, "steady": { "completed_cps": 75.0 },
        } }] } });
        let client = client(&report).unwrap();
        assert_eq!((client.cps, client.rps), (75.0, 150.0));
        let load = Load { server: "nginx", m: 100, client, accepted: 152, ..Load::default() };
        let table = table(&[load]);
        assert_eq!(table.rows[0].cells[6..8], [Value::Number(25.0), Value::Number(95.0)]);
    }
}
