//! `squall routers show` and `squall routers order`: the routers of a live run of a daemon, and
//! orders for them.

use std::{cell::RefCell, process::ExitCode};

use serde_json::{Map, Value, from_value, json};
use squall::Error;
use squall_report::{
    render::{self, human},
    report::routers::{RouterGroupReport, RouterReport},
};
use squall_server::Client;
use squall_units::{Cannot, Nanos};

use super::{
    daemon::Daemon,
    show::{encoded, only_run, unreadable},
};
use crate::{
    args::parse_time,
    output,
    table::{Side, table},
};

/// Width of the lines that show a router, columns.
const WIDTH: usize = 100;

/// Show the routers of a live run of a daemon: sessions, routes and steps so far
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall routers show                                # of the one live run with routers
  squall routers show --router r1
  squall routers show --run r-20261129-0001 --json

Only runs of a daemon have routers that can be shown and ordered: start one with squall serve, and \
                        the run on its web page, by squall.connect in Python, or by POST \
                        /squall/v1/runs.")]
pub struct ShowArgs {
    /// Show only this router
    #[arg(long, value_name = "NAME")]
    router: Option<String>,
    #[command(flatten)]
    of: OfRun,
}

/// Change a router of a live run of a daemon: withdraw routes, end sessions, restart it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall routers order withdraw --group edge --count 100    # of the only router
  squall routers order announce --router r1                 # all groups
  squall routers order down --router r1 --neighbor 10.0.0.2 --message maintenance --duration 5s
  squall routers order silent --router r1 --duration 500ms
  squall routers order restart --router r1 --run r-20261129-0001 --json
  squall routers show                                       # what became of it

Orders are the actions of [[router.step]] in profiles, and are carried out at once:
  withdraw, announce  routes of a group; a count needs a group with single = true, or one that flaps
  down, up            sessions with neighbors
  restart             the daemon, gracefully with graceful_restart = true
  refresh             the neighbors of BGP send their routes again (RFC 2918)
  silent, talk        the link drops all frames of the router, and no longer
  notify              sessions of a native router end with a NOTIFICATION of any --code")]
pub struct OrderArgs {
    /// Carry out this action
    #[arg(value_name = "ACTION", value_parser = [
        "withdraw", "announce", "down", "up", "restart", "refresh", "silent", "talk", "notify",
    ])]
    action: String,
    /// Change this router [default: the only one of the run]
    #[arg(long, value_name = "NAME")]
    router: Option<String>,
    /// Withdraw or announce the routes of this group [default: all groups]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Withdraw or announce only the first N routes that are announced, or withdrawn
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Change only the session with this neighbor [default: all sessions]
    #[arg(long, value_name = "IP")]
    neighbor: Option<String>,
    /// Send this text to the neighbor whose session goes down (RFC 9003)
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// End the sessions of a native router with this error code
    #[arg(long, value_name = "N")]
    code: Option<u8>,
    /// Send this subcode, too [default: 0]
    #[arg(long, value_name = "N")]
    subcode: Option<u8>,
    /// Send these data, too: hexadecimal digits [default: none]
    #[arg(long, value_name = "HEX")]
    data: Option<String>,
    /// Do the reverse after TIME: announce, up or talk
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    duration: Option<Nanos>,
    #[command(flatten)]
    of: OfRun,
}

#[derive(Debug, clap::Args)]
struct OfRun {
    /// Use this run [default: the only live one with routers]
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl OfRun {
    /// The ID of the run. `what` is to be done to its routers.
    fn run(&self, client: &Client, what: &str) -> Result<String, Error> {
        let failed = RefCell::new(None);
        let has = |run: &str| match routers(client, run) {
            Ok(routers) => !routers.is_empty(),
            Err(error) => {
                *failed.borrow_mut() = Some(error);
                false
            }
        };
        let found = self.run.clone().map_or_else(|| only_run(client, (what, "routers"), has), Ok);
        // Reports that cannot be read may be the reason why no run has routers.
        found.map_err(|error| failed.take().unwrap_or(error))
    }
}

/// The routers of a run, as in its report.
fn routers(client: &Client, run: &str) -> Result<Vec<RouterReport>, Error> {
    let mut stats = client.get(&format!("/squall/v1/runs/{}/stats", encoded(run)))?;
    match stats["report"]["routers"].take() {
        // A run that has just been started has no report.
        Value::Null => Ok(Vec::new()),
        found => from_value(found).map_err(unreadable),
    }
}

pub fn show(args: &ShowArgs) -> Result<ExitCode, Error> {
    let client = args.of.daemon.client()?;
    let run = args.of.run(&client, "show")?;
    let mut found = routers(&client, &run)?;
    if let Some(name) = &args.router {
        let names: Vec<_> = found.iter().map(|router| router.name.clone()).collect();
        found.retain(|router| router.name == *name);
        if found.is_empty() {
            let hint = squall_units::suggest(name, names.iter().map(String::as_str));
            let text = format!("run {run} has no router {name:?}\n  {hint}");
            return Err(Error::Usage(text));
        }
    }
    let text = match args.of.json {
        true => json!(found).to_string() + "\n",
        false => found.iter().flat_map(lines).map(|line| line + "\n").collect(),
    };
    output::print_data(&text);
    Ok(ExitCode::SUCCESS)
}

pub fn order(args: &OrderArgs) -> Result<ExitCode, Error> {
    let client = args.of.daemon.client()?;
    let run = args.of.run(&client, "order")?;
    let router = match &args.router {
        Some(router) => router.clone(),
        None => only_router(&run, &routers(&client, &run)?)?,
    };
    let reply =
        client.send(&format!("/squall/v1/runs/{}/routers", encoded(&run)), body(args, &router))?;
    if args.of.json {
        output::print_data(&(reply.to_string() + "\n"));
    } else {
        output::print(&format!(
            "router {router} of run {run}: {} is ordered; squall routers show has its outcome\n",
            args.action
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of the only router of a run.
fn only_router(run: &str, routers: &[RouterReport]) -> Result<String, Error> {
    match routers {
        [router] => Ok(router.name.clone()),
        [] => {
            let why = format!("run {run} has no routers, or has not begun");
            Err(Cannot::new("order routers", why).with_hint("squall top, for its state").into())
        }
        all => {
            let names: Vec<_> = all.iter().map(|router| router.name.as_str()).collect();
            let why = format!("run {run} has several: {}", names.join(", "));
            Err(Cannot::new("order routers", why).with_hint("--router NAME").into())
        }
    }
}

/// The order as the daemon takes it.
fn body(args: &OrderArgs, router: &str) -> Value {
    let mut body = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        body.extend(value.map(|value| (key.to_owned(), value)));
    };
    put("router", Some(router.into()));
    put("action", Some(args.action.clone().into()));
    put("group", args.group.clone().map(Value::from));
    put("count", args.count.map(Value::from));
    put("neighbor", args.neighbor.clone().map(Value::from));
    put("message", args.message.clone().map(Value::from));
    put("code", args.code.map(Value::from));
    put("subcode", args.subcode.map(Value::from));
    put("data", args.data.clone().map(Value::from));
    put("duration", args.duration.map(|time| time.as_secs_f64().into()));
    Value::Object(body)
}

/// A router, its sessions and steps, and a table of its groups.
fn lines(router: &RouterReport) -> Vec<String> {
    let mut lines = render::one_router(router, WIDTH, false);
    let columns = [
        ("  group", Side::Left),
        ("routes", Side::Right),
        ("withdrawn", Side::Right),
        ("flaps", Side::Right),
        ("late", Side::Right),
    ];
    let row = |group: &RouterGroupReport| {
        vec![
            format!("  {}", group.name),
            human::count(group.routes),
            human::count(group.withdrawn),
            human::count(group.flaps),
            human::count(group.late_flaps),
        ]
    };
    if !router.groups.is_empty() {
        let rows: Vec<_> = router.groups.iter().map(row).collect();
        lines.extend(table(&columns, &rows).lines().map(str::to_owned));
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        order: OrderArgs,
    }

    #[test]
    fn an_order_has_only_the_keys_that_were_given() {
        let body = |args: &[&str]| {
            let command = Command::try_parse_from([&["order"], args].concat()).expect("right");
            body(&command.order, "r1")
        };
        assert_eq!(
            body(&["withdraw", "--group", "edge", "--count", "100", "--duration", "500ms"]),
            json!({
                "router": "r1", "action": "withdraw", "group": "edge", "count": 100, "duration": 0.5
            })
        );
        assert_eq!(
            body(&["down", "--neighbor", "10.0.0.2", "--message", "works"]),
            json!({
                "router": "r1", "action": "down", "neighbor": "10.0.0.2", "message": "works"
            })
        );
        assert_eq!(
            body(&["notify", "--code", "6", "--subcode", "9", "--data", "00"]),
            json!({ "router": "r1", "action": "notify", "code": 6, "subcode": 9, "data": "00" })
        );
        assert!(Command::try_parse_from(["order", "drop"]).is_err());
    }

    #[test]
    fn an_order_without_a_name_is_for_the_only_router() {
        let router = |name: &str| RouterReport { name: name.into(), ..RouterReport::default() };
        assert_eq!(only_router("r-1", &[router("r1")]).expect("one"), "r1");
        let several = only_router("r-1", &[router("r1"), router("r2")]).expect_err("two");
        assert!(several.to_string().contains("several: r1, r2"), "{several}");
        assert!(several.to_string().contains("--router NAME"), "{several}");
        assert!(only_router("r-1", &[]).is_err());
    }

    #[test]
    fn a_router_is_shown_with_its_groups() {
        let group = RouterGroupReport {
            name: "edge".into(),
            routes: 1_200,
            withdrawn: 100,
            ..RouterGroupReport::default()
        };
        let router =
            RouterReport { name: "r1".into(), groups: vec![group], ..RouterReport::default() };
        let lines = lines(&router);
        assert!(lines[0].starts_with("router r1 on "), "{lines:?}");
        let last: Vec<_> = lines.last().map(|line| line.split_whitespace().collect()).expect("one");
        assert_eq!(last, ["edge", "1,200", "100", "0", "0"]);
    }
}
