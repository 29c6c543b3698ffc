//! Inventories: the nodes and ports of runs over several machines.
//!
//! Only inventories named by the daemon's operator can be used, because an inventory contains the
//! commands that reach its nodes. The controller reads the whole file; this module reads only the
//! names that clients choose from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use squall::{Error, Profile};
use squall_units::Cannot;

use crate::{Refusal, error::Detail, runs::RunPort, service::Service};

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Inventory {
    /// Name that `nodes` of a new run refers to.
    pub name: String,
    pub nodes: Vec<String>,
    pub ports: Vec<InventoryPort>,
    #[serde(skip)]
    pub file: PathBuf,
}

/// A port of profiles.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InventoryPort {
    pub name: String,
    /// `NODE/ADDRESS`; the nodes of several places share the port's traffic.
    pub places: Vec<String>,
}

/// The part of the file that the daemon reads.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    cluster: Cluster,
    node: BTreeMap<String, IgnoredAny>,
    #[serde(default)]
    ports: BTreeMap<String, Places>,
}

#[derive(Default, Deserialize)]
struct Cluster {
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Places {
    One(String),
    Several(Vec<String>),
}

impl Inventory {
    /// Loads all inventories, in the order of `files`.
    ///
    /// # Errors
    /// If a file cannot be read or is not an inventory, or if two inventories have the same name.
    pub fn load_all(files: &[PathBuf]) -> Result<Vec<Self>, Error> {
        let all = files.iter().map(|file| Self::load(file)).collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        match all.iter().find(|inventory| !names.insert(&inventory.name)) {
            Some(second) => Err(Error::Usage(format!(
                "{}: another inventory is called {:?}, too\n  try name = \"...\" below [cluster]",
                second.file.display(),
                second.name
            ))),
            None => Ok(all),
        }
    }

    fn load(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(|error| {
            Error::from(Cannot::read(file, &error).with_hint("--inventory FILE.toml"))
        })?;
        let written: Written = toml::from_str(&text).map_err(|error| {
            Error::Usage(format!("{}: {error}\n  try docs/guide/cluster.md", file.display()))
        })?;
        let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let port = |(name, places)| InventoryPort {
            name,
            places: match places {
                Places::One(place) => vec![place],
                Places::Several(places) => places,
            },
        };
        Ok(Self {
            name: written.cluster.name.unwrap_or_else(stem),
            nodes: written.node.into_keys().collect(),
            ports: written.ports.into_iter().map(port).collect(),
            file: file.to_owned(),
        })
    }

    /// The ports of the inventory that a profile uses.
    ///
    /// # Errors
    /// If the profile uses a port that the inventory does not have.
    pub fn places(&self, profile: &Profile) -> Result<Vec<&InventoryPort>, Refusal> {
        let place = |name: &String| {
            let known = self.ports.iter().find(|port| port.name == *name);
            known.ok_or_else(|| self.no_port(name))
        };
        profile.ports.iter().map(|port| place(&port.name)).collect()
    }

    fn no_port(&self, name: &str) -> Refusal {
        let known: Vec<_> = self.ports.iter().map(|port| port.name.as_str()).collect();
        let message = format!(
            "inventory {:?} has no port {name:?}: it has {}\n  try one of these names in the \
             profile, or {name} = \"NODE/ADDRESS\" below [ports] of the inventory",
            self.name,
            known.join(", ")
        );
        let path = format!("ports.{name}");
        let detail = Detail { path, message: message.clone(), ..Detail::default() };
        Refusal::bad_request("bad_request", message).with(vec![detail])
    }
}

impl InventoryPort {
    /// The port as shown in a run.
    pub fn shown(&self) -> RunPort {
        RunPort { name: self.name.clone(), address: self.places.join(", ") }
    }

    /// The addresses of the port on its nodes, each with the resource that a lease holds. An
    /// interface of a node serves one run at a time. A `null:` port has no device, so any number of
    /// runs may share it.
    pub fn leased(&self, inventory: &str) -> impl Iterator<Item = (String, Option<String>)> {
        self.places.iter().map(move |place| {
            let many = place.split_once('/').is_some_and(|(_, address)| address == "null:");
            (place.clone(), (!many).then(|| format!("{inventory}: {place}")))
        })
    }
}

impl Service {
    /// The inventories that a run can name. The files are read again, so that an edit needs no
    /// restart.
    ///
    /// # Errors
    /// If a file has become unreadable.
    pub fn inventories(&self) -> Result<Vec<Inventory>, Refusal> {
        Inventory::load_all(&self.settings.inventories).map_err(|error| {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "environment", error.to_string())
        })
    }

    /// # Errors
    /// If there is no such inventory.
    pub fn inventory(&self, name: &str) -> Result<Inventory, Refusal> {
        let mut all = self.inventories()?;
        if let Some(at) = all.iter().position(|inventory| inventory.name == name) {
            return Ok(all.swap_remove(at));
        }
        let known: Vec<_> = all.iter().map(|inventory| inventory.name.as_str()).collect();
        let remedy = match known.as_slice() {
            [] => "squall serve --inventory FILE.toml".into(),
            known => known.join(", "),
        };
        let message = format!("nodes: there is no inventory {name:?}\n  try {remedy}");
        let detail = Detail { path: "nodes".into(), message: message.clone(), ..Detail::default() };
        Err(Refusal::bad_request("unknown_inventory", message).with(vec![detail]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_an_inventory_has_its_file_and_names_are_unique() {
        let folder =
            std::env::temp_dir().join(format!("squall-inventories-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let write = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::write(&file, text).expect("a file");
            file
        };
        let lab = write("lab.toml", "[node.one]\naddress = \"10.0.0.1\"\n[ports]\nA = \"one/x\"\n");
        let same = write("other.toml", "[cluster]\nname = \"lab\"\n[node.two]\n");
        for (files, expected) in [
            (vec![folder.join("none.toml")], "none.toml: there is no such file"),
            (vec![write("text.toml", "nodes\n")], "text.toml: "),
            (vec![write("empty.toml", "")], "missing field `node`"),
            (vec![lab.clone(), same], "other.toml: another inventory is called \"lab\""),
        ] {
            let error = Inventory::load_all(&files).expect_err(expected).to_string();
            assert!(error.contains(expected) && error.contains("\n  try "), "{error}");
        }
        let found = Inventory::load_all(&[lab]).expect("an inventory");
        fs::remove_dir_all(folder).expect("removed");
        assert_eq!((&*found[0].name, &*found[0].nodes), ("lab", &["one".to_owned()][..]));
        assert_eq!(found[0].ports[0].places, ["one/x"]);
    }
}
