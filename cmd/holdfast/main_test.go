package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/auth"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	"github.com/holdfast-dev/holdfast/internal/registry/signature/signaturetest"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/upstreamtest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"holdfast": main, auth.HelperName: main})
}

// bothEngines are the scripts that also run on PostgreSQL, because they use queries that
// no other script uses. The command itself does not depend on the engine.
var bothEngines = []string{"advisories", "events", "groups", "registry", "role_bindings", "sign_in"}

// TestStories runs each script against its own server.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(bothEngines, name) {
				tell(t, file, storetest.SQLite(t))
				return
			}
			storetest.EachURL(t, func(t *testing.T, url string) { tell(t, file, url) })
		})
	}
}

func tell(t *testing.T, file, database string) {
	clock := &clock{}
	dev := start(t, server.Config{Database: database, Now: clock.now, AWSEndpoint: startAWS(t)})
	testscript.Run(t, testscript.Params{
		Files:              []string{file},
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOLDFAST_API", dev.BaseURL)
			e.Setenv("HOLDFAST_TOKEN", dev.Token)
			e.Setenv("HOLDFAST_TOKEN_STORE", "file") // keeps the tests away from the developer's keyring
			e.Setenv("HOLDFAST_CLIENT_CONFIG", filepath.Join(e.WorkDir, "config.yaml"))
			e.Setenv("ORG", dev.OrganizationUID)
			e.Setenv("OWNER", dev.OwnerUID)
			e.Setenv("DEV_JSON", dev.file)
			e.Setenv("REGISTRY", dev.RegistryHost)
			e.Setenv("DOCKER_CONFIG", filepath.Join(e.WorkDir, "docker"))
			e.Setenv("TEST_ISSUER", dev.TestIssuer)
			e.Setenv("PROVIDER", startProvider(t))
			e.Setenv("QUICKSTART", filepath.Join(e.WorkDir, "quickstart.sh"))
			// Otherwise the race detector would delay the end of each command by a second.
			e.Setenv("GORACE", "atexit_sleep_ms=10")
			e.Values["clock"] = clock
			e.Values["dev"] = dev
			e.Values["test"] = t
			if err := os.WriteFile(filepath.Join(e.WorkDir, "host.txt"), []byte(dev.RegistryHost), 0o600); err != nil {
				return err
			}
			return writeQuickstart(filepath.Join(e.WorkDir, "quickstart.sh"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "capture": capture, "now": now, "pass": pass, "tls": startTLS, "push": push, "sign": sign,
			"await": await, "claims": showClaims,
			"elsewhere": startElsewhere, "distribution": startDistribution, "index": pushIndex, "attach": attach,
			"terminal": terminal,
		},
	})
}

// writeQuickstart extracts the commands of the quick start from docs/cli.md.
func writeQuickstart(file string) error {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(page), "```sh quickstart\n")
	script, _, found := strings.Cut(rest, "```")
	if !found {
		return errors.New("docs/cli.md has no quick start")
	}
	return os.WriteFile(file, []byte(script), 0o600)
}

// A clock is the clock of the server. Scripts can advance it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// A devServer is the part of dev.json that the tests use.
type devServer struct {
	signin.DevFile
	OwnerUID      string
	RegistryToken string
	file          string
}

// start runs a server in dev mode until the test ends.
func start(t *testing.T, cfg server.Config) devServer {
	t.Helper()
	cfg.Dev, cfg.Listen, cfg.DataDir, cfg.Stdout, cfg.Stderr = true, "127.0.0.1:0", t.TempDir(), io.Discard, io.Discard
	srv, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	dev := devServer{file: filepath.Join(cfg.DataDir, "dev.json")}
	text, err := os.ReadFile(dev.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dev); err != nil {
		t.Fatal(err)
	}
	return dev
}

// startAWS starts a fake of the AWS token service, which knows one caller by the ID of
// its key. It returns the address.
func startAWS(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=AKIDKNOWN/") || r.Host != "sts.amazonaws.com" {
			http.Error(w, "InvalidClientTokenId", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "text/xml")
		_, _ = io.WriteString(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
			<GetCallerIdentityResult><Arn>arn:aws:sts::123456789012:assumed-role/build/i-1</Arn><UserId>AROA:i-1</UserId>
			<Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// startProvider starts a fake identity provider that knows one client and has issued no
// code. It returns the issuer.
func startProvider(t *testing.T) string {
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token",
			"jwks_uri": s.URL + "/keys", "response_types_supported": []string{"code"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"keys": []}`) })
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		why := "invalid_grant"
		if id, secret, _ := r.BasicAuth(); id+r.FormValue("client_id") != "holdfast" ||
			secret+r.FormValue("client_secret") != "hush" {
			why = "invalid_client"
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
	})
	return s.URL
}

// exits N COMMAND... runs a command and fails unless its exit code is N.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code = %d, want %d", got, want)
	}
}

// await COMMAND... runs a command until it has a result, because the server makes some
// changes only after it has answered.
func await(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		ts.Check(ts.Exec(args[0], args[1:]...))
		if ts.ReadFile("stdout") != "" {
			return
		}
	}
	ts.Fatalf("there is no result")
}

// claims COMMAND... runs a command that prints a token. The output is the claims of the
// token.
func showClaims(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec(args[0], args[1:]...))
	parts := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), ".")
	if len(parts) != 3 {
		ts.Fatalf("there is no token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("claims.json"), payload, 0o600))
	ts.Check(ts.Exec("cat", ts.MkAbs("claims.json")))
}

// capture NAME stores the standard output of the last command in a variable.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// now NAME sets a variable to the current time. Earlier changes have this time or an
// earlier one, and later changes have a later one.
func now(ts *testscript.TestScript, _ bool, args []string) {
	at := time.Now()
	ts.Setenv(args[0], at.UTC().Format(time.RFC3339Nano))
	for time.Since(at) < 2*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
}

// pass DURATION advances the clock of the server.
func pass(ts *testscript.TestScript, _ bool, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	ts.Value("clock").(*clock).ahead.Add(int64(d))
}

// tls starts a second server, which uses TLS with an unknown certificate. It sets TLS_API
// and TLS_TOKEN, and writes the certificate to tls.crt.
func startTLS(ts *testscript.TestScript, _ bool, _ []string) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	ts.Check(err)
	crt, secret := ts.MkAbs("tls.crt"), ts.MkAbs("tls.key")
	ts.Check(os.WriteFile(crt, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	ts.Check(os.WriteFile(secret, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	t := ts.Value("test").(*testing.T)
	dev := start(t, server.Config{Database: storetest.SQLite(t), TLSCert: crt, TLSKey: secret})
	ts.Setenv("TLS_API", dev.BaseURL)
	ts.Setenv("TLS_TOKEN", dev.Token)
}

// elsewhere starts a second server at the host OTHER, and configures a password for it in
// docker.
func startElsewhere(ts *testscript.TestScript, _ bool, _ []string) {
	t := ts.Value("test").(*testing.T)
	dev := start(t, server.Config{Database: storetest.SQLite(t)})
	setOther(ts, dev.RegistryHost, "_token:"+dev.RegistryToken)
}

// distribution starts the registry distribution at the host OTHER, and configures a
// password for it in docker.
func startDistribution(ts *testscript.TestScript, _ bool, _ []string) {
	d := upstreamtest.Start(ts.Value("test").(*testing.T))
	setOther(ts, d.Front, upstreamtest.User+":"+upstreamtest.Password)
}

// setOther sets OTHER, and configures a password for it in docker.
func setOther(ts *testscript.TestScript, host, password string) {
	ts.Setenv("OTHER", host)
	ts.Setenv("DOCKER_CONFIG", ts.MkAbs("docker"))
	ts.Check(os.MkdirAll(ts.MkAbs("docker"), 0o700))
	text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte(password)))
	ts.Check(os.WriteFile(filepath.Join(ts.MkAbs("docker"), "config.json"), []byte(text), 0o600))
}

// push REPO TAG ARCHITECTURE LAYER pushes an image of one layer as the owner and stores
// its digest in DIGEST.
func push(ts *testscript.TestScript, _ bool, args []string) {
	dev, repo, tag, layer := ts.Value("dev").(devServer), args[0], args[1], args[3]
	digest := func(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }
	config := fmt.Sprintf(`{"architecture":%q,"os":"linux","config":{"User":"app","Entrypoint":["/app","serve"]},`+
		`"rootfs":{"type":"layers","diff_ids":[%q]}}`,
		args[2], digest(layer))
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,`+
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`,
		manifestType, digest(config), len(config), digest(layer), len(layer))
	for _, blob := range []string{config, layer} {
		ts.Check(dev.send(http.MethodPost, repo+"/blobs/uploads/?digest="+digest(blob), "application/octet-stream", blob))
	}
	ts.Check(dev.send(http.MethodPut, repo+"/manifests/"+tag, manifestType, manifest))
	ts.Setenv("DIGEST", digest(manifest))
}

// index REPO TAG DIGEST… pushes an index of images as the owner and stores its digest in
// DIGEST.
func pushIndex(ts *testscript.TestScript, _ bool, args []string) {
	const indexType = "application/vnd.oci.image.index.v1+json"
	var list []string
	for _, digest := range args[2:] {
		list = append(list, fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":1}`, manifestType, digest))
	}
	text := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[%s]}`, indexType, strings.Join(list, ","))
	ts.Check(ts.Value("dev").(devServer).send(http.MethodPut, args[0]+"/manifests/"+args[1], indexType, text))
	ts.Setenv("DIGEST", signaturetest.Digest([]byte(text)))
}

// attach REPO DIGEST TYPE MEGABYTES attaches an artifact with an annotation of that size
// to an image.
func attach(ts *testscript.TestScript, _ bool, args []string) {
	dev, repo := ts.Value("dev").(devServer), args[0]
	megabytes, err := strconv.Atoi(args[3])
	ts.Check(err)
	empty := fmt.Sprintf(`{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":2}`,
		signaturetest.Digest([]byte("{}")))
	text := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":%q,"config":%s,"layers":[%[3]s],`+
		`"subject":{"mediaType":%[1]q,"digest":%[4]q,"size":1},"annotations":{"note":%[5]q}}`,
		manifestType, args[2], empty, args[1], strings.Repeat("n", megabytes<<20))
	ts.Check(dev.send(http.MethodPost, repo+"/blobs/uploads/?digest="+signaturetest.Digest([]byte("{}")),
		"application/octet-stream", "{}"))
	ts.Check(dev.send(http.MethodPut, repo+"/manifests/"+signaturetest.Digest([]byte(text)), manifestType, text))
}

// sign REPO DIGEST FILE creates a key pair, writes the public key to FILE, and signs an
// image with the private key, as cosign does.
func sign(ts *testscript.TestScript, _ bool, args []string) {
	dev, repo, image := ts.Value("dev").(devServer), args[0], args[1]
	key, err := signaturetest.NewKey("ecdsa")
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(key.PEM()), 0o600))
	payload := signaturetest.Payload(repo, image)
	annotations, err := key.Cosign(payload)
	ts.Check(err)
	for _, blob := range []string{"{}", string(payload)} {
		ts.Check(dev.send(http.MethodPost, repo+"/blobs/uploads/?digest="+signaturetest.Digest([]byte(blob)),
			"application/octet-stream", blob))
	}
	layer, err := json.Marshal(map[string]any{"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
		"digest": signaturetest.Digest(payload), "size": len(payload), "annotations": annotations})
	ts.Check(err)
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,`+
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":2},"layers":[%s]}`,
		manifestType, signaturetest.Digest([]byte("{}")), layer)
	ts.Check(dev.send(http.MethodPut, repo+"/manifests/"+strings.Replace(image, ":", "-", 1)+".sig", manifestType,
		manifest))
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// send sends a request to the registry.
func (d devServer) send(method, target, contentType, content string) error {
	r, err := http.NewRequestWithContext(context.Background(), method, d.BaseURL+"/v2/"+target, strings.NewReader(content))
	if err != nil {
		return err
	}
	r.SetBasicAuth("_token", d.RegistryToken)
	r.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %s: %s: %s", method, target, resp.Status, text)
	}
	return nil
}
