//! The flows of a trial: the profile's, at the trial's load.

use squall_method::{FlowLoad, Halt, Http};
use squall_profile::{Arrival, FlowContent, Flows, Located, Ramp, Spacing, Template, Transport};
use squall_units::Nanos;

/// Adapts the profile's flows to one trial.
pub(crate) fn loaded(flows: &Flows, load: &FlowLoad, duration_s: f64) -> Result<Flows, Halt> {
    let mut flows = Flows { limit: load.limit, ..flows.clone() };
    if let Some(http) = load.http {
        // The HTTP exchange replaces programs, so that nothing starts these templates.
        flows.templates.retain(|template| template.arrival != Arrival::Called);
        flows.templates.truncate(1);
        flows.templates.iter_mut().for_each(|template| speaks_http(template, http));
    }
    let all: f64 = flows.templates.iter().map(|template| template.arrival.amount()).sum();
    for template in &mut flows.templates {
        let share = if all > 0.0 { template.arrival.amount() / all } else { 1.0 };
        let spacing = match template.arrival {
            Arrival::Cps { spacing, .. } | Arrival::Weight { spacing, .. } => spacing,
            _ => Spacing::Constant,
        };
        if template.arrival != Arrival::Called {
            template.arrival = Arrival::Cps { cps: load.cps * share, spacing };
        }
        template.stages.clear();
        (template.limit, template.duration, template.after) = Default::default();
        let settings = load.tcp.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        template.tcp.settings.extend(settings);
    }
    if flows.templates.is_empty() {
        return Err(Halt::Usage("the profile has no template of flows".into()));
    }
    flows.target = None;
    let hold_s = duration_s - load.ramp_up_s - load.ramp_down_s;
    flows.ramp = Ramp {
        up: Nanos::from_secs_f64(load.ramp_up_s),
        hold: Some(Nanos::from_secs_f64(hold_s.max(0.0))),
        down: Nanos::from_secs_f64(load.ramp_down_s),
    };
    Ok(flows)
}

/// Replaces the application of a template by HTTP.
fn speaks_http(template: &mut Template, http: Http) {
    let scheme = if http.tls { "https" } else { "http" };
    let body = if http.upload { "post" } else { "body" };
    let mut options = vec![
        ("url".to_owned(), Located::from(format!("{scheme}://dut.example/").as_str())),
        (body.to_owned(), Located::from(http.object_octets.to_string().as_str())),
        ("requests".to_owned(), Located::from(http.requests.to_string().as_str())),
    ];
    if http.think_s > 0.0 {
        let think = Nanos::from_secs_f64(http.think_s).to_string();
        options.push(("think".to_owned(), Located::from(think.as_str())));
    }
    template.content = FlowContent::App { app: Located::from("http"), options };
    template.data = None;
    template.transport = Transport::Tcp;
    if http.tls {
        template.tls.get_or_insert_default();
    } else {
        template.tls = None;
    }
}
