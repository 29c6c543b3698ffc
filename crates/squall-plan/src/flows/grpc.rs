//! Methods and messages of gRPC from `.proto` files and descriptor sets. Messages are encoded here,
//! once; flows send the octets.

use std::collections::BTreeMap;

use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, prost::Message,
};
use protox::{
    Compiler,
    file::{ChainFileResolver, File, FileResolver, GoogleFileResolver},
};
use squall_units::Cannot;

use crate::Assets;

/// The methods of all services in a file.
pub struct Methods(Vec<MethodDescriptor>);

impl Methods {
    /// Reads a `.proto` file with its imports, which are in its folder, or a descriptor set (`protoc
    /// --include_imports --descriptor_set_out`).
    ///
    /// # Errors
    /// A file that cannot be read or has an error, or that has no method.
    pub fn read(path: &str, assets: &dyn Assets) -> Result<Self, String> {
        let pool = if path.ends_with(".proto") {
            compile(path, assets)?
        } else {
            let octets =
                assets.file(path).map_err(|error| Cannot::read(path, &error).to_string())?;
            DescriptorPool::decode(&octets[..])
                .map_err(|error| format!("{path} is not a descriptor set: {error}"))?
        };
        let methods: Vec<_> =
            pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
        if methods.is_empty() {
            return Err(format!("{path} has no service with methods"));
        }
        Ok(Self(methods))
    }

    /// Paths of the methods: `/package.Service/Method`.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(path_of)
    }

    /// The method with this path; without a path, the only method.
    pub fn find(&self, path: Option<&str>) -> Option<&MethodDescriptor> {
        match (path, &self.0[..]) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(path), all) => all.iter().find(|method| path_of(method) == path),
        }
    }
}

pub fn path_of(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

/// Encodes a message that is written as JSON
/// (<https://protobuf.dev/programming-guides/json/>).
///
/// # Errors
/// Text that is not JSON, or not that of the message.
pub fn encode(message: MessageDescriptor, json: &str) -> Result<Vec<u8>, String> {
    let mut json = serde_json::Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(message, &mut json);
    let message = message.and_then(|message| json.end().map(|()| message));
    Ok(message.map_err(|error| error.to_string())?.encode_to_vec())
}

/// Compiles a `.proto` file.
fn compile(path: &str, assets: &dyn Assets) -> Result<DescriptorPool, String> {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let google = GoogleFileResolver::new();
    let mut files = Files::default();
    let mut wanted = vec![name.to_owned()];
    while let Some(name) = wanted.pop() {
        if files.0.contains_key(&name) || google.open_file(&name).is_ok() {
            continue;
        }
        let place = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let octets = assets.file(&place);
        let octets = octets.map_err(|error| Cannot::read(&place, &error).to_string())?;
        let source = String::from_utf8(octets).map_err(|_| format!("{place} is not text"))?;
        let file = File::from_source(&name, &source).map_err(|error| explain(&place, &error))?;
        wanted.extend(file.file_descriptor_proto().dependency.iter().cloned());
        files.0.insert(name, file);
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(files);
    resolver.add(google);
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.open_file(name).map_err(|error| explain(path, &error))?;
    Ok(compiler.descriptor_pool())
}

fn explain(path: &str, error: &protox::Error) -> String {
    format!("{path}: {error}")
}

/// Files that were read, by the names with which they are imported.
#[derive(Debug, Default)]
struct Files(BTreeMap<String, File>);

impl FileResolver for Files {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        self.0.get(name).cloned().ok_or_else(|| protox::Error::file_not_found(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::TestFiles;

    const FILES: TestFiles = TestFiles(&[
        (
            "api/user.proto",
            r#"
            syntax = "proto3";
            package shop;
            import "common/id.proto";
            import "google/protobuf/empty.proto";
            message Order { common.Id id = 1; repeated string items = 2; }
            service Orders {
                rpc Put(Order) returns (google.protobuf.Empty);
                rpc Watch(common.Id) returns (stream Order);
            }"#,
        ),
        (
            "api/common/id.proto",
            r#"syntax = "proto3"; package common; message Id { int32 number = 1; }"#,
        ),
        ("one.proto", r#"syntax = "proto3"; message M {} service S { rpc One(M) returns (M); }"#),
        ("none.proto", r#"syntax = "proto3"; message M { int32 number = 1; }"#),
        ("wrong.proto", "syntax = \"proto3\";\nmessage M { int33 number = 1; }"),
        ("broken.proto", "syntax = \"proto3\";\nmessage M {"),
        ("import.proto", r#"syntax = "proto3"; import "none/there.proto";"#),
        ("set.pb", "no descriptor set"),
    ]);

    #[test]
    fn methods_and_messages_come_from_a_file_and_its_imports() {
        let methods = Methods::read("api/user.proto", &FILES).expect("right files");
        let paths: Vec<_> = methods.paths().collect();
        assert_eq!(paths, ["/shop.Orders/Put", "/shop.Orders/Watch"]);
        assert_eq!(methods.find(None), None, "there are two");
        let put = methods.find(Some("/shop.Orders/Put")).expect("it is there");
        assert!(!put.is_server_streaming());
        let octets = encode(put.input(), r#"{"id": {"number": 300}, "items": ["a", "bc"]}"#);
        assert_eq!(octets, Ok(b"\x0a\x03\x08\xac\x02\x12\x01a\x12\x02bc".to_vec()));
        assert_eq!(encode(put.output(), "{}"), Ok(vec![]));
        for (json, error) in [
            (r#"{"it": 1}"#, "it"),
            (r#"{"items": 1}"#, "line 1"),
            ("{} {}", "trailing"),
            ("", "EOF"),
        ] {
            let found = encode(put.input(), json).expect_err(json);
            assert!(found.contains(error), "{found}");
        }
        let one = Methods::read("one.proto", &FILES).expect("a right file");
        assert_eq!(one.find(None).map(path_of).as_deref(), Some("/S/One"));
        // A descriptor set says the same.
        let method = one.find(None).expect("the only one");
        let set = method.parent_pool().encode_to_vec();
        let pool = DescriptorPool::decode(&set[..]).expect("a descriptor set");
        assert_eq!(pool.services().count(), 1);
    }

    #[test]
    fn errors_name_the_file_and_what_is_wrong() {
        for (path, error) in [
            ("missing.proto", "cannot read missing.proto"),
            ("missing.pb", "cannot read missing.pb"),
            ("none.proto", "none.proto has no service"),
            ("wrong.proto", "int33"),
            ("broken.proto", "broken.proto: "),
            ("import.proto", "cannot read none/there.proto"),
            ("set.pb", "set.pb is not a descriptor set"),
        ] {
            let found = Methods::read(path, &FILES).err().expect(path);
            assert!(found.contains(error), "{found}");
        }
    }
}
