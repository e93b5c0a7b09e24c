use super::*;

const MINIMAL: &str = "deployment: {role: data_plane, role_data_plane: {config_provider: yaml}}\n";

fn read(text: &str) -> Result<(Settings, Vec<Problem>), Problems> {
    let env = |name: &str| match name {
        "PORT" => Some("8080".to_owned()),
        "FLAG" => Some("true".to_owned()),
        _ => None,
    };
    parse(format!("{MINIMAL}{text}").as_bytes(), Path::new("/etc/lockgate/conf/config.yaml"), &env, &["echo"])
}

fn good(text: &str) -> Settings {
    read(text).unwrap_or_else(|e| panic!("{text}: {e}")).0
}

/// The problems without the file name.
#[track_caller]
fn bad(text: &str, expected: &[&str]) {
    let problems = read(text).err().unwrap_or_default();
    let got: Vec<String> =
        problems.iter().map(|p| p.to_string().replace("/etc/lockgate/conf/config.yaml:", "")).collect();
    assert_eq!(got, expected, "{text}");
}

#[track_caller]
fn warned(text: &str, expected: &[&str]) {
    let (_, warnings) = read(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let got: Vec<String> = warnings.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
    assert_eq!(got, expected, "{text}");
}

fn addrs(listen: &[Listen]) -> Vec<String> {
    listen.iter().map(|l| l.addr.to_string()).collect()
}

#[test]
fn listeners_in_every_form() {
    let check = |text: &str, expected: &[&str]| assert_eq!(addrs(&good(text).listen), expected, "{text}");
    check("", &["0.0.0.0:9080", "[::]:9080"]);
    check("apisix: {node_listen: 80, enable_ipv6: false}", &["0.0.0.0:80"]);
    check("apisix: {node_listen: [80, 81], enable_ipv6: false}", &["0.0.0.0:80", "0.0.0.0:81"]);
    check("apisix: {node_listen: [{ip: 127.0.0.1, port: 80}, {ip: '::1', port: 81}]}", &["127.0.0.1:80", "[::1]:81"]);
    check("apisix: {node_listen: '${{PORT}}', enable_ipv6: false}", &["0.0.0.0:8080"]);
    check("apisix: {node_listen: '${{NONE:=7000}}', enable_ipv6: false}", &["0.0.0.0:7000"]);
    let tls = good("apisix: {ssl: {listen: [{port: 443}], fallback_sni: a.test}, enable_ipv6: false}").tls;
    assert_eq!(addrs(&tls.listen), ["0.0.0.0:443"]);
    assert!(good("apisix: {ssl: {enable: false}}").tls.listen.is_empty());
}

#[test]
fn values_of_every_kind() {
    let settings = good(
        "apisix: {router: {http: radixtree_uri}, delete_uri_tail_slash: true, trusted_addresses: [10.0.0.0/8]}\n\
         nginx_config:\n  worker_processes: 3\n  worker_shutdown_timeout: 1m\n  error_log_level: error\n  \
         http: {client_max_body_size: 10m, send_timeout: 5, access_log: off.log, access_log_format_escape: json}\n\
         lockgate: {drain_seconds: 3}\n",
    );
    assert_eq!(settings.router, Mode::Uri);
    assert!(settings.match_options.delete_tail_slash);
    assert_eq!(settings.workers, 3);
    assert_eq!(settings.shutdown_timeout, Duration::from_secs(60));
    assert_eq!(settings.client.max_body, 10 << 20);
    assert_eq!(settings.client.send, Duration::from_secs(5));
    assert_eq!(settings.lockgate.drain, Duration::from_secs(3));
    assert_eq!(settings.source, SourceKind::Yaml("/etc/lockgate/conf/apisix.yaml".into()));
    let log = settings.access_log.unwrap();
    assert_eq!((log.path, log.escape), ("/etc/lockgate/off.log".into(), Escape::Json));
}

#[test]
fn unknown_keys_come_with_place_and_suggestion() {
    bad("apisix:\n  node_lisen: 80\n", &["3:3: apisix.node_lisen: unknown key `node_lisen` (did you mean `apisix.node_listen`?)"]);
    bad("apisx: {}\n", &["2:1: apisx: unknown key `apisx` (did you mean `apisix`?)"]);
    bad("node_listen: 80\n", &["2:1: node_listen: unknown key `node_listen` (it belongs at `apisix.node_listen`)"]);
    bad("nginx_config:\n  http:\n    zzz: 1\n", &["4:5: nginx_config.http.zzz: unknown key `zzz`"]);
}

#[test]
fn wrong_values_are_all_reported() {
    bad(
        "apisix:\n  node_listen: [0, x]\n  enable_http2: 'yes please'\n  router: {http: tree}\n",
        &[
            "5:12: apisix.router.http: expected one of radixtree_host_uri, radixtree_uri, radixtree_uri_with_parameter, found \"tree\"",
            "3:17: apisix.node_listen[0]: expected a port from 1 to 65535, found 0",
            "3:20: apisix.node_listen[1]: expected a port or {ip, port}, found \"x\"",
            "4:3: apisix.enable_http2: expected true or false, found \"yes please\"",
        ],
    );
    bad("nginx_config: {http: {send_timeout: soon}}\n", &["2:23: nginx_config.http.send_timeout: expected a duration such as 60s, 1m, 500ms, or a number of seconds, found \"soon\""]);
    bad("nginx_config: {http: {client_max_body_size: big}}\n", &["2:23: nginx_config.http.client_max_body_size: expected a size such as 0, 512k, 10m, or a number of bytes, found \"big\""]);
    bad("apisix: {trusted_addresses: [10.0.0.0/8, here]}\n", &["2:42: apisix.trusted_addresses[1]: expected an address or network, found \"here\""]);
    bad("nginx_config: {worker_processes: 0}\n", &["2:16: nginx_config.worker_processes: expected a whole number from 1 to 1024, found 0"]);
    bad("apisix: {router: 5}\n", &["2:10: apisix.router: expected a mapping, found 5"]);
    bad("apisix: {node_listen: '${{NONE}}'}\n", &[
        "2:10: apisix.node_listen: can't find environment variable NONE",
        "2:10: apisix.node_listen: expected a port or {ip, port}, found \"${{NONE}}\"",
    ]);
}

#[test]
fn conflicts_between_listeners() {
    bad("apisix: {node_listen: 9443, enable_ipv6: false}\n", &["2:1: apisix.ssl.listen: ssl.listen port 9443 conflicts with node_listen"]);
    bad("apisix: {node_listen: 7085, enable_ipv6: false}\n", &["2:1: apisix.status.port: status port 7085 conflicts with node_listen"]);
}

#[test]
fn providers_that_are_not_there() {
    let read = |text: &str| parse(text.as_bytes(), Path::new("c.yaml"), &|_| None, &[]).err().map(|p| p.to_string()).unwrap_or_default();
    let check = |text: &str, start: &str| {
        let got = read(text);
        assert!(got.starts_with(start) && got.contains("config_provider: yaml"), "{text}: {got}");
    };
    check("deployment: {role: data_plane, role_data_plane: {config_provider: etcd}}", "c.yaml:1:50: deployment.role_data_plane.config_provider: etcd is not available");
    check("apisix: {}", "c.yaml:1:1: deployment: etcd is not available");
    check("deployment: {role: control_plane}", "c.yaml:1:14: deployment.role: control_plane is not available");
}

#[test]
fn keys_without_effect_get_one_warning() {
    warned("apisix: {enable_reuseport: true, proxy_mode: http}", &[]);
    warned("apisix: {stream_proxy: {tcp: [9100], udp: [9200]}}", &["apisix.stream_proxy: has no effect: TCP and UDP routes are not served by this version"]);
    warned("nginx_config: {http_configuration_snippet: ''}", &[]);
    warned("plugin_attr: {zipkin: {set_ngx_var: true}, prometheus: {export_uri: /m}}", &[]);
    warned("plugins: [echo, jwt-auth]", &["plugins: not available in this version, resources that use them are refused: jwt-auth"]);
}

#[test]
fn the_shipped_settings_load_without_a_word() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/config.yaml");
    let names: Vec<&str> = lockgate_plugins::ALL.iter().map(|def| def.name).collect();
    let (settings, warnings) = load(&path, &|_| None, &names).unwrap_or_else(|e| panic!("{e}"));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(settings.listen[0].addr.port(), 9080);
}
