//! Ports and leases.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{Method, StatusCode},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_port_linux::{Permissions, lab};

use super::{Body, Named, Operation, Optional, Routes};
use crate::{
    Refusal,
    identity::{identity, note},
    leases::{Keep, Lease},
    ports::{PortLease, PortRow},
    runs::{StopReason, lock, otg_session},
    service::Service,
    threads::blocking,
};

pub fn routes() -> Routes {
    let of_ports = |summary| Operation::new("ports", summary);
    let doc = |summary| Operation::new("leases", summary);
    Routes::new()
        .get(
            "/squall/v1/ports",
            ports,
            of_ports("List the allowed ports with their users").gives::<PortList>(),
        )
        .post(
            "/squall/v1/lab",
            make_lab,
            of_ports("Create a lab: two interfaces, each the other's peer").gives::<LabState>(),
        )
        .on(
            Method::DELETE,
            "/squall/v1/lab",
            remove_lab,
            of_ports("Remove the lab that was created by a request").gives::<LabState>(),
        )
        .get("/squall/v1/leases", leases, doc("List all leases").gives::<LeaseList>())
        .post(
            "/squall/v1/leases",
            lease,
            doc("Lease ports; the error 409 names their holders")
                .takes::<NewLease>()
                .gives::<LeaseRow>()
                .status(201),
        )
        .post(
            "/squall/v1/leases/release",
            release,
            doc("Take ports away from their holders, and stop the runs there")
                .takes::<Release>()
                .gives::<LeaseList>(),
        )
        .get("/squall/v1/leases/{id}", one, doc("Get a lease").gives::<LeaseRow>())
        .post(
            "/squall/v1/leases/{id}/renew",
            renew,
            doc("Renew a lease for its ttl_s from now").gives::<LeaseRow>(),
        )
        .on(
            Method::DELETE,
            "/squall/v1/leases/{id}",
            give_back,
            doc("Return a lease, and stop its runs").status(204),
        )
}

#[derive(Serialize, JsonSchema)]
struct PortList {
    ports: Vec<PortRow>,
    lab: LabState,
}

/// The lab in the daemon's network namespace.
#[derive(Serialize, JsonSchema)]
struct LabState {
    /// Its interfaces, which any run may use; empty: there is no lab.
    interfaces: Vec<String>,
    /// Whether a request created it, and another can remove it.
    removable: bool,
    /// Why the daemon cannot create one; `null`: it can.
    refused: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub struct LeaseList {
    pub leases: Vec<LeaseRow>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LeaseRow {
    pub id: String,
    pub owner: String,
    /// Addresses.
    pub ports: Vec<String>,
    pub ttl_s: f64,
    /// Seconds from now; `null`: until its run ends, or its connection closes.
    pub expires_s: Option<f64>,
    /// Always false: a lease that was taken away no longer exists.
    pub force: bool,
    /// The lease is over; its runs are being stopped.
    pub ending: bool,
    pub runs: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewLease {
    /// Addresses.
    ports: Vec<String>,
    /// Name of the holder, shown to others: a person, a test.
    owner: Option<String>,
    /// Seconds until it expires unless it is renewed, 1 to 86,400.
    ttl_s: Option<f64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Release {
    ports: Vec<String>,
    /// Name of the taker, shown to the former holders: a person, a test.
    owner: Option<String>,
}

/// The requested time to live of a lease, or the default.
///
/// # Errors
///
/// If the number is not a time or is out of range.
pub fn ttl(service: &Service, requested: Option<f64>) -> Result<Duration, Refusal> {
    match requested {
        None => Ok(service.settings.lease),
        Some(seconds) if (1.0..=86_400.0).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Some(seconds) => Err(Refusal::bad_request(
            "bad_request",
            format!("ttl_s = {seconds}: expected 1 to 86400"),
        )),
    }
}

/// The requested owner, or the default.
///
/// # Errors
///
/// If the name is invalid.
pub fn owner(requested: Option<String>) -> Result<String, Refusal> {
    let owner = requested.unwrap_or_else(|| "somebody".into());
    if owner.is_empty() || owner.chars().count() > 100 || owner.chars().any(char::is_control) {
        return Err(Refusal::bad_request("bad_request", "owner: expected 1 to 100 characters"));
    }
    // The name of an OTG session is reserved: the end of a lease with that owner would stop the
    // session's traffic.
    if otg_session(&owner).is_some() {
        return Err(Refusal::bad_request(
            "bad_request",
            format!("owner: {owner:?} is a session of Open Traffic Generator\n  try another name"),
        ));
    }
    Ok(owner)
}

impl Service {
    pub fn lease_rows(&self) -> Vec<LeaseRow> {
        let all: Vec<_> = lock(&self.leases).all().cloned().collect();
        all.iter().map(|lease| self.row(lease)).collect()
    }

    fn row(&self, lease: &Lease) -> LeaseRow {
        let stays = lease.keep == Keep::Run || lock(&self.leases).is_connected(&lease.owner);
        LeaseRow {
            id: lease.id.clone(),
            owner: lease.owner.clone(),
            ports: lease.ports.iter().map(|(address, _)| address.clone()).collect(),
            ttl_s: lease.ttl.as_secs_f64(),
            expires_s: (!stays && !lease.ending)
                .then(|| lease.expires.saturating_sub(self.now()).as_secs_f64()),
            force: false,
            ending: lease.ending,
            runs: self.runs.of_lease(&lease.id).iter().map(|live| live.row().id).collect(),
        }
    }
}

async fn ports(State(service): State<Arc<Service>>) -> Result<Json<PortList>, Refusal> {
    blocking(move || {
        service.expire();
        let mut ports = service.ports.list()?;
        let leases: Vec<_> = lock(&service.leases).all().cloned().collect();
        for (lease, (address, resource)) in
            leases.iter().flat_map(|lease| lease.ports.iter().map(move |port| (lease, port)))
        {
            let row = service.row(lease);
            let run = row.runs.first().cloned();
            let lease = PortLease { id: row.id, owner: row.owner, expires_s: row.expires_s };
            let name = resource.as_deref().and_then(|resource| resource.strip_prefix("interface "));
            let known = ports
                .iter_mut()
                .find(|port| port.interface.is_some() && port.interface.as_deref() == name);
            match known {
                Some(port) => (port.lease, port.run) = (Some(lease), run),
                None => ports.push(PortRow {
                    address: address.clone(),
                    interface: None,
                    kind: address.split(':').next().unwrap_or_default().to_owned(),
                    state: "unknown",
                    mac: None,
                    mtu: None,
                    speed_bps: None,
                    backends: Vec::new(),
                    counters: None,
                    lease: Some(lease),
                    run,
                    note: String::new(),
                }),
            }
        }
        Ok(Json(PortList { ports, lab: lab_state() }))
    })
    .await
}

fn lab_state() -> LabState {
    let permission = Permissions::of_this_process().new_interfaces();
    let (here, refused) = match lab::here() {
        Ok(here) => (here, permission.err()),
        Err(error) => (None, Some(error.to_string())),
    };
    LabState {
        interfaces: here.iter().flat_map(|_| lab::INTERFACES.map(str::to_owned)).collect(),
        removable: here.is_some_and(|here| here.removable) && refused.is_none(),
        refused,
    }
}

fn no_lab(error: lab::LabError) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "environment", error.to_string())
}

async fn make_lab() -> Result<Json<LabState>, Refusal> {
    blocking(|| {
        if let Some(why) = lab_state().refused {
            let message = format!("cannot create a lab: {why}");
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "environment", message));
        }
        lab::make_here(&lab::LabOptions::default()).map_err(no_lab)?;
        note("created a lab");
        Ok(Json(lab_state()))
    })
    .await
}

async fn remove_lab(State(service): State<Arc<Service>>) -> Result<Json<LabState>, Refusal> {
    blocking(move || {
        service.expire();
        // A run whose interface vanishes would end with an error that names no cause.
        for interface in lab::INTERFACES {
            let holder = lock(&service.leases).holder(&format!("interface {interface}")).cloned();
            if let Some(lease) = holder {
                return Err(Refusal::conflict(
                    "port_in_use",
                    format!(
                        "cannot remove the lab: {interface} is held by {}\n  release it first",
                        lease.owner
                    ),
                ));
            }
        }
        if !lab::remove_here().map_err(no_lab)? {
            let message = "there is no lab that a request created";
            return Err(Refusal::not_found(message));
        }
        note("removed the lab");
        Ok(Json(lab_state()))
    })
    .await
}

async fn leases(State(service): State<Arc<Service>>) -> Json<LeaseList> {
    service.expire();
    Json(LeaseList { leases: service.lease_rows() })
}

async fn lease(
    State(service): State<Arc<Service>>,
    Body(new): Body<NewLease>,
) -> Result<(StatusCode, Json<LeaseRow>), Refusal> {
    if new.ports.is_empty() || new.ports.len() > 256 {
        return Err(Refusal::bad_request("bad_request", "ports: expected 1 to 256 addresses"));
    }
    let (owner, ttl) = (owner(new.owner)?, ttl(&service, new.ttl_s)?);
    blocking(move || {
        let admit = |address: String| {
            let admitted = service.ports.admit(&address, &service.files)?;
            Ok((address, admitted.resource))
        };
        let ports = new.ports.into_iter().map(admit).collect::<Result<Vec<_>, Refusal>>()?;
        let addresses: Vec<_> = ports.iter().map(|(address, _)| address.as_str()).collect();
        let addresses = addresses.join(", ");
        let lease = service.lease(&owner, ports, ttl, Keep::Renewed)?;
        note(format!("lease {} of {owner}: {addresses}", lease.id));
        Ok((StatusCode::CREATED, Json(service.row(&lease))))
    })
    .await
}

fn find(service: &Arc<Service>, id: &str) -> Result<Lease, Refusal> {
    service.expire();
    lock(&service.leases).get(id).cloned().ok_or_else(|| service.no_lease(id))
}

async fn one(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<Json<LeaseRow>, Refusal> {
    let lease = find(&service, &id)?;
    Ok(Json(service.row(&lease)))
}

async fn renew(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
    Optional(_): Optional<serde_json::Value>,
) -> Result<Json<LeaseRow>, Refusal> {
    service.expire();
    let lease = lock(&service.leases)
        .renew(service.now(), &id)
        .cloned()
        .ok_or_else(|| service.no_lease(&id))?;
    Ok(Json(service.row(&lease)))
}

async fn give_back(
    State(service): State<Arc<Service>>,
    Named(id): Named<String>,
) -> Result<StatusCode, Refusal> {
    let lease = lock(&service.leases).release(&id);
    match lease {
        Some(lease) => service.end_lease(&lease, &StopReason::Asked("its lease was returned")),
        None => _ = find(&service, &id)?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Waits until the ports are free, a few seconds at most.
async fn release(
    State(service): State<Arc<Service>>,
    Body(of): Body<Release>,
) -> Result<Json<LeaseList>, Refusal> {
    let by = of.owner.map(|name| owner(Some(name))).transpose()?;
    let identity = identity();
    // The message includes the address, too, because clients may give any name.
    let by =
        by.map_or_else(|| identity.to_string(), |name| format!("{name} at {}", identity.source));
    let because = StopReason::interrupted(format!("its ports were taken away by {by}"));
    let resources: Vec<_> = {
        let admit = |address: &String| Ok(service.ports.admit(address, &service.files)?.resource);
        of.ports
            .iter()
            .map(admit)
            .collect::<Result<Vec<_>, Refusal>>()?
            .into_iter()
            .flatten()
            .collect()
    };
    let mut taken = Vec::new();
    for resource in &resources {
        let lease = {
            let mut leases = lock(&service.leases);
            let id = leases.holder(resource).map(|lease| lease.id.clone());
            id.and_then(|id| leases.release(&id))
        };
        if let Some(lease) = lease {
            let ports: Vec<_> = lease.ports.iter().map(|(address, _)| address.as_str()).collect();
            note(format!(
                "{by} took lease {} of {} away: {}",
                lease.id,
                lease.owner,
                ports.join(", ")
            ));
            service.end_lease(&lease, &because);
            taken.push(service.row(&lease));
        }
    }
    for _ in 0..150 {
        if !resources.iter().any(|resource| lock(&service.leases).holder(resource).is_some()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(Json(LeaseList { leases: taken }))
}
