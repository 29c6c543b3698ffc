//! Profiles: checks, conversions and plans.

use std::{path::Path, sync::Arc};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::{Format, Profile};
use squall_editor::{self as design, Checked, FileAccess, Problem, To, Written};
use squall_plan::flows::{self, AppOption, LayerOptionKind};

use super::{one_of, refused};
use crate::{
    Refusal,
    api::{Body, Operation, Routes},
    budget,
    service::Service,
    threads::blocking,
    work::is_abandoned,
};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("design", summary);
    let mut routes = Routes::new()
        .post(
            "/squall/v1/profiles/check",
            check,
            doc("Check a profile; the reply lists its errors, each with its position")
                .takes::<Asked>()
                .gives::<Checked>(),
        )
        .post(
            "/squall/v1/profiles/convert",
            convert,
            doc("Convert a profile to TOML, YAML, JSON or Python")
                .takes::<Convert>()
                .gives::<Text>(),
        )
        .post(
            "/squall/v1/plan",
            plan,
            doc("Describe the traffic of a profile without opening ports")
                .takes::<Asked>()
                .gives::<Plan>(),
        )
        .get(
            "/squall/v1/applications",
            applications,
            doc("List the built-in applications of flows").gives::<Applications>(),
        );
    routes.router = budget::of_profiles(routes.router);
    routes
}

/// Waits for a permit and runs `work`. Only [`crate::budget::PLANNING`] run at once, because each
/// may take the memory of a large profile. If its client leaves, `work` is dropped before it
/// starts, or stops soon after.
async fn in_turn<T: Send + 'static>(
    service: &Service,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // The thread owns the permit, otherwise a client that leaves would free it while its work still
    // runs.
    let turn = service.planning.clone().acquire_owned().await;
    blocking(move || {
        let done = work();
        drop(turn);
        done
    })
    .await
}

#[derive(Serialize, JsonSchema)]
struct Applications {
    applications: Vec<ApplicationInfo>,
    /// Settings of a template around its application.
    layers: Vec<LayerInfo>,
}

/// A key of a template with settings around its application.
#[derive(Serialize, JsonSchema)]
struct LayerInfo {
    /// `tls`, `http` or `proxy_protocol`.
    key: &'static str,
    /// Description in one line.
    about: String,
    /// Keys of its table.
    options: Vec<LayerOption>,
}

/// An option of such settings.
#[derive(Serialize, JsonSchema)]
struct LayerOption {
    name: String,
    /// The value that applies if the option is absent, or what happens then; `null`: not known.
    default: Option<String>,
    /// Description in one line.
    about: String,
    /// The form of its value: `text` (or a number), `boolean`, or `list` (or a text).
    kind: &'static str,
}

/// A built-in application.
#[derive(Serialize, JsonSchema)]
struct ApplicationInfo {
    name: &'static str,
    /// Description in one line.
    about: &'static str,
    /// Keys that `options` of a template can have.
    options: Vec<OptionInfo>,
}

/// An option of an application.
#[derive(Serialize, JsonSchema)]
struct OptionInfo {
    name: &'static str,
    /// The value that applies if the option is absent; `null`: absent is not a value.
    default: Option<&'static str>,
    /// Description in one line.
    about: &'static str,
}

async fn applications() -> Json<Applications> {
    let applications = squall_plan::flows::catalog()
        .into_iter()
        .map(|app| ApplicationInfo {
            name: app.name,
            about: app.about,
            options: app
                .options
                .iter()
                .map(|&AppOption { name, default, about }| OptionInfo { name, default, about })
                .collect(),
        })
        .collect();
    let option = |option: flows::LayerOption| LayerOption {
        name: option.name,
        default: option.default,
        about: option.about,
        kind: match option.kind {
            LayerOptionKind::Text => "text",
            LayerOptionKind::Boolean => "boolean",
            LayerOptionKind::List => "list",
        },
    };
    let layers = flows::layers().into_iter().map(|layer| LayerInfo {
        key: layer.key,
        about: layer.about,
        options: layer.options.into_iter().map(option).collect(),
    });
    Json(Applications { applications, layers: layers.collect() })
}

/// A profile, as text or as an object.
#[derive(Deserialize, JsonSchema)]
struct Asked {
    text: Option<String>,
    /// An object of the schema, or text.
    profile: Option<serde_json::Value>,
    /// Format of the text; absent: JSON if it begins with a brace, else TOML.
    format: Option<FormatName>,
    /// Number of frames that a plan shows, at most 1000; absent: 10.
    frames: Option<usize>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum FormatName {
    Toml,
    Yaml,
    Json,
}

impl Asked {
    fn written(&self) -> Result<Written<'_>, Refusal> {
        match (&self.text, &self.profile) {
            (Some(text), None) | (None, Some(serde_json::Value::String(text))) => {
                let format = match self.format {
                    Some(FormatName::Toml) => Format::Toml,
                    Some(FormatName::Yaml) => Format::Yaml,
                    Some(FormatName::Json) => Format::Json,
                    None if text.trim_start().starts_with('{') => Format::Json,
                    None => Format::Toml,
                };
                Ok(Written::Text(text, format))
            }
            (None, Some(value)) => Ok(Written::Value(value)),
            _ => Err(one_of("text and profile")),
        }
    }
}

/// A check that allows an action, or returns the reason why it is not allowed.
type Leave<T, E> = Box<dyn Fn(&T) -> Result<(), E> + Sync>;

/// The daemon's files, for profiles that refer to files.
pub struct ProfileFiles {
    folder: std::path::PathBuf,
    may_read: Leave<Path, String>,
    may_use: Leave<Profile, Problem>,
}

pub fn files(service: &Arc<Service>) -> ProfileFiles {
    let folder =
        Path::new(&service.files.origin("profile")).parent().unwrap_or(Path::new("")).to_owned();
    let (reads, uses) = (service.clone(), service.clone());
    let message =
        |service: &Service, refusal: Refusal| service.files.without_root(&refusal.message);
    ProfileFiles {
        folder,
        may_read: Box::new(move |path| {
            let path = path.to_string_lossy();
            reads.files.path(&path).map(drop).map_err(|refusal| message(&reads, refusal))
        }),
        may_use: Box::new(move |profile| {
            let checked = budget::check(profile).and_then(|()| uses.files.check(profile));
            checked.map_err(|refusal| Problem {
                path: refusal.details.first().map(|detail| detail.path.clone()).unwrap_or_default(),
                message: message(&uses, refusal),
                ..Problem::default()
            })
        }),
    }
}

impl ProfileFiles {
    pub fn around(&self) -> FileAccess<'_> {
        FileAccess {
            folder: &self.folder,
            may_read: &*self.may_read,
            may_use: &*self.may_use,
            is_cancelled: &is_abandoned,
        }
    }
}

/// Replaces paths of the daemon by the names that users know.
fn without_paths(service: &Service, problems: &mut [Problem]) {
    for problem in problems {
        problem.message = service.files.without_root(&problem.message);
        problem.details.iter_mut().for_each(|detail| *detail = service.files.without_root(detail));
    }
}

async fn check(
    State(service): State<Arc<Service>>,
    Body(asked): Body<Asked>,
) -> Result<Json<Checked>, Refusal> {
    in_turn(&service.clone(), move || {
        let mut checked = design::check(asked.written()?, files(&service).around());
        without_paths(&service, &mut checked.problems);
        Ok(Json(checked))
    })
    .await
}

#[derive(Deserialize, JsonSchema)]
struct Convert {
    text: Option<String>,
    /// An object of the schema, or text.
    profile: Option<serde_json::Value>,
    /// Format of the text; absent: JSON if it begins with a brace, else TOML.
    format: Option<FormatName>,
    to: To,
}

#[derive(Serialize, JsonSchema)]
struct Text {
    text: String,
}

async fn convert(
    State(service): State<Arc<Service>>,
    Body(asked): Body<Convert>,
) -> Result<Json<Text>, Refusal> {
    in_turn(&service.clone(), move || {
        let Convert { text, profile, format, to } = asked;
        let asked = Asked { text, profile, format, frames: None };
        let converted = design::convert(asked.written()?, files(&service).around(), to);
        let text = converted.map_err(|mut problems| {
            without_paths(&service, &mut problems);
            refused("bad_profile", &problems)
        })?;
        Ok(Json(Text { text }))
    })
    .await
}

#[derive(Serialize, JsonSchema)]
struct Plan {
    /// Output of `squall plan`.
    text: String,
    /// Notes for the user.
    notes: Vec<String>,
}

async fn plan(
    State(service): State<Arc<Service>>,
    Body(asked): Body<Asked>,
) -> Result<Json<Plan>, Refusal> {
    in_turn(&service.clone(), move || {
        let frames = asked.frames.unwrap_or(10).min(1000);
        let planned = design::plan_text(asked.written()?, files(&service).around(), frames);
        let (text, notes) = planned.map_err(|mut problems| {
            without_paths(&service, &mut problems);
            refused("bad_profile", &problems)
        })?;
        Ok(Json(Plan { text: service.files.without_root(&text), notes }))
    })
    .await
}
