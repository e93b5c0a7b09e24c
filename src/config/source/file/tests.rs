use super::*;

/// How long a change may take to be seen before the test fails.
const DEADLINE: Duration = Duration::from_secs(10);

/// A folder of its own, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder =
            std::env::temp_dir().join(format!("lockgate-file-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn yaml(uri: &str) -> String {
    format!("routes:\n  - id: 1\n    uri: {uri}\n    plugins: {{}}\n#END\n")
}

fn env(name: &str) -> Option<String> {
    (name == "URI").then(|| "/env".to_owned())
}

fn source(path: &Path, format: Format) -> FileSource {
    FileSource::new(path, format, env)
}

/// The URI of the first route, or what is wrong without the file's name.
fn uri(result: Result<Batch, Problems>, path: &Path) -> Result<String, String> {
    match result {
        Ok(batch) => {
            let first = batch.wanted().next();
            Ok(first.unwrap().1["uri"].as_str().unwrap().to_owned())
        }
        Err(problems) => Err(problems
            .to_string()
            .replace(&path.display().to_string(), "FILE")),
    }
}

#[test]
fn the_end_flag() {
    for text in ["a: 1\n#END", "#END\n", "x\n#END\r\n \n"] {
        assert!(has_end(text.as_bytes()), "{text:?}");
    }
    for text in [
        "",
        "a: 1\n",
        "#END\na: 1\nb: 2\n",
        "#END x",
        "#END\n\n\n\n\n\n\n",
    ] {
        assert!(!has_end(text.as_bytes()), "{text:?}");
    }
}

#[test]
fn what_a_file_may_hold() {
    let folder = Folder::new("hold");
    let check = |format: Format, text: &str, expected: Result<&str, &str>| {
        let path = folder.write("f", text);
        let got = uri(source(&path, format).load(), &path);
        match (&got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{text}"),
            (Err(got), Err(expected)) => assert!(got.starts_with(expected), "{text}: {got}"),
            _ => panic!("{text}: {got:?}"),
        }
    };
    check(Format::Yaml, &yaml("/a"), Ok("/a"));
    check(Format::Yaml, &yaml("${{URI}}"), Ok("/env"));
    check(
        Format::Yaml,
        &yaml("${{NONE}}"),
        Err("FILE:3:10: can't find environment variable NONE"),
    );
    check(
        Format::Yaml,
        "routes:\n  - id: 1\n",
        Err("FILE: missing valid end flag"),
    );
    check(Format::Yaml, "", Err("FILE: missing valid end flag"));
    check(
        Format::Yaml,
        "routes: [\n#END\n",
        Err("FILE:3:1: not YAML: "),
    );
    check(
        Format::Yaml,
        "route: []\n#END\n",
        Err("FILE:1:1: route: unknown key `route` (did you mean `routes`?)"),
    );
    check(
        Format::Yaml,
        "routes:\n- id: 1\n  uri: /a\n- uri: /b\n  id: '1'\n#END\n",
        Err("FILE:4:3: routes[1]: found duplicate id 1 in routes (the first one is routes[0])"),
    );
    check(Format::Json, r#"{"routes": [{"uri": "/a"}]}"#, Ok("/a"));
    check(
        Format::Json,
        r#"{"routes": [{"uri": "${{URI}}"}]}"#,
        Ok("/env"),
    );
    check(
        Format::Json,
        "{\"routes\": [\n  {\"uri\": \"${{NONE}}\"}]}",
        Err("FILE:2:4: routes[0].uri: can't find environment variable NONE"),
    );
    check(Format::Json, r#"{"routes": [{"uri": "/a"}"#, Err("FILE:1:"));
    for blank in ["", " \n", "\u{feff}", "null", " null\n"] {
        check(Format::Json, blank, Err("FILE: holds no configuration"));
    }
    let path = folder.write("f", "{}");
    let batch = source(&path, Format::Json).load().unwrap();
    assert!(batch.resources.is_empty());
}

#[test]
fn files_that_cannot_be_read() {
    let folder = Folder::new("unreadable");
    let check = |path: &Path, expected: &str| {
        let got = uri(source(path, Format::Yaml).load(), path).unwrap_err();
        assert!(got.starts_with(expected), "{got}");
    };
    check(&folder.path("none"), "FILE: cannot be read: No such file");
    check(&folder.0, "FILE: cannot be read: not a regular file");
    let large = folder.path("large");
    File::create(&large)
        .unwrap()
        .set_len(MAX_TEXT as u64 + 1)
        .unwrap();
    check(
        &large,
        "FILE: is 67108865 bytes long; at most 67108864 are read",
    );
}

#[test]
fn problems_and_warnings_have_places() {
    let folder = Folder::new("places");
    let path = folder.write(
        "f",
        "plugins: []\nroutes:\n- uri: /a\n- uri: /b\n  priority: x\n#END\n",
    );
    let batch = source(&path, Format::Yaml).load().unwrap();
    let places = |problems: &Problems| problems.iter().map(|p| p.place).collect::<Vec<_>>();
    assert_eq!(places(&batch.warnings), [Some((1, 1))]);
    let mut problems = Problems::default();
    for (resource, path) in [
        ("routes/arr_2", "priority"),
        ("routes/arr_2", "hosts[0]"),
        ("routes/arr_1", ""),
        ("", ""),
    ] {
        let mut problem = Problem::new(path, "x");
        problem.resource = resource.to_owned();
        problems.push(problem);
    }
    batch.locate(&mut problems);
    assert_eq!(
        places(&problems),
        [Some((5, 3)), Some((4, 3)), Some((3, 3)), Some((1, 1))]
    );
    assert!(problems.iter().all(|p| p.file.as_deref() == path.to_str()));
}

#[test]
fn the_same_content_is_not_reported_again() {
    let folder = Folder::new("same");
    let path = folder.write("f", &yaml("/a"));
    let mut source = source(&path, Format::Yaml);
    let check = |source: &mut FileSource, expected: bool| assert_eq!(source.read().1, expected);
    check(&mut source, true);
    check(&mut source, false);
    // Just written: the time alone does not tell.
    assert!(source.may_have_changed());
    let old = SystemTime::now() - Duration::from_secs(60);
    File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .set_modified(old)
        .unwrap();
    check(&mut source, false);
    assert!(!source.may_have_changed());
    std::fs::remove_file(&path).unwrap();
    assert!(source.may_have_changed());
    check(&mut source, true);
    check(&mut source, false);
    assert!(!source.may_have_changed());
    folder.write("f", &yaml("/a"));
    assert!(source.may_have_changed());
    check(&mut source, true);
}

/// A source that runs, and what it sends.
struct Running {
    path: PathBuf,
    sent: mpsc::Receiver<Update>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Starts with the content that is there, which is not sent.
    fn start(path: &Path) -> Running {
        let mut source = source(path, Format::Yaml);
        source.load().unwrap();
        let (out, sent) = mpsc::channel(1);
        Running {
            path: path.to_owned(),
            sent,
            task: tokio::spawn(source.run(out)),
        }
    }

    async fn next(&mut self) -> Result<String, String> {
        let sent = tokio::time::timeout(DEADLINE, self.sent.recv()).await;
        let sent = sent.expect("a change that is not seen");
        match sent.expect("a source that stopped") {
            Update::File(read) => uri(*read, &self.path),
            _ => panic!("not of a file"),
        }
    }

    /// Waits for a content; others in between are those of a change that was half done.
    async fn until(&mut self, expected: &str) {
        while self.next().await.as_deref() != Ok(expected) {}
    }
}

#[tokio::test]
async fn a_file_that_is_renamed_into_place_is_seen_whole() {
    let folder = Folder::new("rename");
    let path = folder.write("apisix.yaml", &yaml("/one"));
    let mut running = Running::start(&path);
    for uri in ["/two", "/three", "/two"] {
        std::fs::rename(folder.write("new", &yaml(uri)), &path).unwrap();
        // Nothing in between: a rename is one step.
        assert_eq!(running.next().await.as_deref(), Ok(uri));
    }
    running.task.abort();
}

#[tokio::test]
async fn a_switched_link_is_seen() {
    // As Kubernetes mounts a ConfigMap: the file links into a folder that is a link itself.
    let folder = Folder::new("link");
    let data = |name: &str, uri: &str| {
        std::fs::create_dir(folder.path(name)).unwrap();
        std::fs::write(folder.path(name).join("apisix.yaml"), yaml(uri)).unwrap();
    };
    let link = |from: &str, to: &str| std::os::unix::fs::symlink(from, folder.path(to)).unwrap();
    data("..1", "/one");
    link("..1", "..data");
    link("..data/apisix.yaml", "apisix.yaml");
    let mut running = Running::start(&folder.path("apisix.yaml"));
    for (version, uri) in [("..2", "/two"), ("..3", "/three")] {
        data(version, uri);
        link(version, "..new");
        std::fs::rename(folder.path("..new"), folder.path("..data")).unwrap();
        assert_eq!(running.next().await.as_deref(), Ok(uri));
    }
    running.task.abort();
}

#[tokio::test]
async fn half_a_file_is_refused_and_the_rest_taken() {
    let folder = Folder::new("half");
    let path = folder.write("apisix.yaml", &yaml("/one"));
    let mut running = Running::start(&path);
    folder.write("apisix.yaml", "routes:\n");
    let half = running.next().await.unwrap_err();
    assert!(half.starts_with("FILE: missing valid end flag"), "{half}");
    folder.write("apisix.yaml", &yaml("/two"));
    running.until("/two").await;
    std::fs::remove_file(&path).unwrap();
    let gone = running.next().await.unwrap_err();
    assert!(gone.starts_with("FILE: cannot be read"), "{gone}");
    folder.write("apisix.yaml", &yaml("/two"));
    running.until("/two").await;
    running.task.abort();
}

#[tokio::test]
async fn the_source_ends_with_its_receiver() {
    let folder = Folder::new("end");
    let running = Running::start(&folder.write("apisix.yaml", &yaml("/one")));
    drop(running.sent);
    tokio::time::timeout(DEADLINE, running.task)
        .await
        .unwrap()
        .unwrap();
}
