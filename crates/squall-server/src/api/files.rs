//! Files of the data directory: captures, rules, profiles, labels.

use std::sync::Arc;

use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncWriteExt},
};

use super::{Named, Operation, Routes};
use crate::{
    Refusal,
    files::{FileRow, MOST},
    service::Service,
    threads::blocking,
};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("files", summary);
    Routes::new()
        .get("/squall/v1/files", list, doc("List all files").gives::<FileList>())
        .get(
            "/squall/v1/files/{*name}",
            download,
            doc("Download a file").gives_octets("application/octet-stream"),
        )
        .on(
            Method::PUT,
            "/squall/v1/files/{*name}",
            upload,
            doc("Store a file of at most 512 MiB; an existing one is replaced")
                .takes_octets()
                .gives::<FileRow>()
                .status(201),
        )
        .on(Method::DELETE, "/squall/v1/files/{*name}", delete, doc("Delete a file").status(204))
}

#[derive(Serialize, JsonSchema)]
struct FileList {
    files: Vec<FileRow>,
}

async fn list(State(service): State<Arc<Service>>) -> Result<Json<FileList>, Refusal> {
    blocking(move || Ok(Json(FileList { files: service.files.list() }))).await
}

fn failed(error: std::io::Error) -> Refusal {
    Refusal::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "environment",
        format!("cannot store the file: {error}"),
    )
}

async fn download(
    State(service): State<Arc<Service>>,
    Named(name): Named<String>,
) -> Result<Response, Refusal> {
    let path = service.files.there(&name)?;
    let file =
        File::open(&path).await.map_err(|error| Refusal::not_found(format!("{name}: {error}")))?;
    let length = file.metadata().await.map_err(failed)?.len();
    // Send only the length as of now, because a file that is being written grows after the header
    // is sent.
    let pieces = Pieces { file: file.take(length), buffer: vec![0; 64 << 10] };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        // Makes browsers save the file instead of displaying it.
        (header::CONTENT_DISPOSITION, "attachment".to_owned()),
        // Prevents browsers from treating an uploaded file as a page, whose scripts would have the
        // user's session.
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, Body::new(pieces)).into_response())
}

/// A file as a body in chunks, so its size does not matter for memory.
struct Pieces {
    file: tokio::io::Take<File>,
    buffer: Vec<u8>,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        let Self { file, buffer } = &mut *self;
        let mut read = tokio::io::ReadBuf::new(buffer);
        let done = std::task::ready!(tokio::io::AsyncRead::poll_read(
            std::pin::Pin::new(file),
            context,
            &mut read
        ));
        std::task::Poll::Ready(match done {
            Ok(()) if read.filled().is_empty() => None,
            Ok(()) => Some(Ok(http_body::Frame::data(Bytes::copy_from_slice(read.filled())))),
            Err(error) => Some(Err(error)),
        })
    }
}

async fn upload(
    State(service): State<Arc<Service>>,
    Named(name): Named<String>,
    body: Body,
) -> Result<(StatusCode, Json<FileRow>), Refusal> {
    // Use the name as the list shows it: `a//b` becomes `a/b`.
    let name = service.files.plain(&name)?;
    // Check the path before reading the body, so that a refusal does not wait for the upload.
    service.files.path(&name)?;
    let part = service.files.unfinished();
    let kept = keep(body, &part).await;
    let renamed = match kept {
        Ok(()) => {
            blocking({
                let (part, service, name) = (part.clone(), service.clone(), name.clone());
                move || {
                    let path = service.new_file(&name)?;
                    if path.is_dir() {
                        return Err(Refusal::bad_request(
                            "bad_path",
                            format!("{name:?} is a folder"),
                        ));
                    }
                    std::fs::rename(&part, path).map_err(failed)
                }
            })
            .await
        }
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = renamed {
        _ = tokio::fs::remove_file(&part).await;
        return Err(refusal);
    }
    let row = blocking(move || {
        let known = service.files.list().into_iter().find(|row| row.name == name);
        known.ok_or_else(|| {
            Refusal::not_found(format!("{name:?} was uploaded and then removed by someone else"))
        })
    });
    Ok((StatusCode::CREATED, Json(row.await?)))
}

async fn keep(mut body: Body, part: &std::path::Path) -> Result<(), Refusal> {
    let mut file = File::create_new(part).await.map_err(failed)?;
    let mut octets = 0u64;
    while let Some(frame) = body.frame().await {
        let cut = |error| {
            Refusal::new(
                StatusCode::REQUEST_TIMEOUT,
                "incomplete",
                format!("the body is incomplete: {error}"),
            )
        };
        let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
        octets += data.len() as u64;
        if octets > MOST {
            return Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "a file can have at most 512 MiB",
            ));
        }
        file.write_all(&data).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)
}

async fn delete(
    State(service): State<Arc<Service>>,
    Named(name): Named<String>,
) -> Result<StatusCode, Refusal> {
    blocking(move || {
        let path = service.files.there(&name)?;
        std::fs::remove_file(path).map_err(failed)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
