package holdfast_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/holdfast-dev/holdfast"

// The packages of the command, and what those above sign-in may all import.
const (
	cli     = "cmd/holdfast/internal/"
	cliBase = "client gen/... " + cli + "output " + cli + "problem " + cli + "settings " + cli + "signin stamp "
)

// Packages import only what is listed on their line. Read top to bottom, this is
// the architecture. A name ending in /... stands for everything below it, and
// "..." alone for everything.
var mayImport = []struct{ pkg, imports string }{
	{"fault", ""},
	{"page", "fault"},
	{"resource", "fault"},
	{"seal", "fault"},
	{"stamp", ""},
	{"turn", "fault resource"},
	{"trace", ""},
	{"metric", ""},
	{"testprogram", ""},
	{"blob", ""},
	{"blob/blobtest", "blob testprogram"},
	{"outbound", "trace"},
	{"outbound/outboundtest", ""},
	{"store", "fault page resource trace"},
	{"store/iamdb", "fault page resource store"},
	{"store/signindb", "fault page resource store"},
	{"store/bitmap", ""},
	{"store/registrydb", "fault metric page resource store store/bitmap"},
	{"store/findingdb", "fault page resource store store/bitmap"},
	{"store/advisorydb", "fault metric page resource store"},
	{"store/eventdb", "fault page resource store"},
	{"store/maildb", "resource store"},
	{"store/plantest", "store"},
	{"people", "fault resource seal store store/iamdb store/registrydb store/signindb"},
	{"refusal", "resource store"},
	{"store/storetest", "fault page people resource seal store store/..."},
	{"authz", "fault page resource store store/iamdb trace"},
	{"budget", "authz fault page resource store store/iamdb"},
	{"advisory/version", "fault resource"},
	{"advisory/format", "advisory/version fault resource"},
	{"advisory/fetch", "advisory/format fault outbound resource"},
	{"advisory", "advisory/fetch advisory/format advisory/version authz fault metric page resource store store/advisorydb " +
		"trace"},
	{"registry/evidence", ""},
	{"registry/signature", ""},
	{"registry/signature/signaturetest", ""},
	{"inspect/layer", ""},
	{"inspect/extract", "advisory/version inspect/layer"},
	{"inspect", "advisory/version inspect/extract inspect/layer registry/evidence"}, // its child has no business with the rest
	{"inspect/inspecttest", ""},
	{"mail", "metric resource seal store store/maildb"},
	{"mail/mailtest", ""},
	{"iam", "authz fault mail page people resource seal store store/iamdb store/signindb turn"},
	{"token", "authz fault metric resource seal store store/iamdb trace"},
	{"trust", "metric outbound trace"},
	{"sts", "authz fault metric outbound resource store store/iamdb token trace trust"},
	{"upstream/challenge", ""},
	{"upstream/link", ""},
	{"upstream/upstreamtest", "testprogram"},
	{"upstream", "outbound upstream/challenge upstream/link"},
	{"registry", "authz blob fault metric outbound page refusal registry/evidence registry/signature resource seal store store/iamdb store/registrydb token " +
		"trace turn upstream"},
	{"finding", "advisory/format advisory/version authz fault iam inspect metric page registry registry/evidence resource store " +
		"store/advisorydb store/findingdb store/iamdb store/registrydb turn"},
	{"backup", "blob fault resource seal store store/registrydb"},
	{"login", "authz fault mail metric outbound page people refusal resource seal store store/iamdb store/signindb sts trace"},
	{"event", "authz fault metric outbound page resource store store/eventdb token trace"},
	{"search", "advisory authz event fault finding iam page registry resource store"},
	{"operator", "authz fault resource store store/iamdb token"},
	{"api/wire", "event fault gen/... page resource"},
	{"api/v2", "advisory advisory/format api/wire budget event fault finding gen/... iam login operator registry resource " +
		"search sts"},
	{"api/v1", "advisory api/v2 api/wire event fault finding gen/... iam login operator page registry registry/evidence " +
		"resource sts"},
	{"api", "advisory advisory/format api/v1 api/v2 api/wire authz event fault gen/... metric resource token trace"},
	{"reference", ""},
	{"console", ""},
	{"server", "..."},
	{"cmd/holdfastd", "fault inspect server stamp"},
	{"client", "gen/..."},
	{cli + "problem", ""},
	{cli + "output", "gen/... " + cli + "problem"},
	{cli + "settings", "client " + cli + "output " + cli + "problem"},
	{cli + "signin", "client gen/... " + cli + "output " + cli + "problem " + cli + "settings stamp"},
	{cli + "noun", cliBase},
	{cli + "transfer", cli + "problem upstream/challenge upstream/link"},
	{cli + "iam", cliBase + cli + "noun"},
	{cli + "registry", cliBase + cli + "iam " + cli + "noun " + cli + "transfer"},
	{cli + "advisories", cliBase + cli + "noun"},
	{cli + "events", cliBase + cli + "iam " + cli + "noun"},
	{cli + "auth", cliBase + cli + "iam " + cli + "noun " + cli + "registry"},
	{"cmd/holdfast", cliBase + cli + "..."},
	{"gen/...", "gen/..."},
	{"proto/generate", ""},
	{"bench", "..."},
	{"e2e/...", "..."},
}

// Third parties stay behind the packages that wrap them. What is not named here
// is free.
var onlyIn = []struct{ library, homes string }{
	{"modernc.org/sqlite", "store store/plantest store/storetest inspect/extract bench e2e"},
	{"github.com/jackc/pgx", "store store/plantest store/storetest bench e2e"},
	{"github.com/pressly/goose", "store store/plantest store/storetest bench e2e"},
	{"google.golang.org/grpc", "api/... server client cmd/holdfast/internal/... gen/... proto/generate bench e2e"},
	{"google.golang.org/genproto", "api/... server client cmd/holdfast/internal/... gen/... proto/generate bench e2e"},
	{"github.com/grpc-ecosystem/grpc-gateway", "api e2e"},
	{"github.com/go-jose/go-jose", "token trust"},
	{"github.com/prometheus", "metric server api bench"},
	{"go.opentelemetry.io", "trace"},
	{"github.com/yuin/goldmark", "registry"},
	{"github.com/minio", "blob"},
	{"github.com/opencontainers", "registry"},
	{"github.com/sigstore", "registry/signature registry/signature/signaturetest"},
	{"github.com/microcosm-cc/bluemonday", "registry"},
	{"github.com/package-url", "advisory/version"},
	{"github.com/pandatix", "advisory/format"},
	{"github.com/coreos/go-oidc", "login"},
	{"golang.org/x/oauth2", "login"},
	{"github.com/go-webauthn/webauthn", "login"},
	{"github.com/pquerna/otp", "login"},
	{"github.com/ccojocar/zxcvbn-go", "login"},
	{"github.com/google/osv-scalibr", "inspect/extract"},
	{"github.com/erikvarga/go-rpmdb", "inspect/extract"},
	{"github.com/klauspost/compress", "inspect/layer bench"},
	{"github.com/landlock-lsm", "inspect"},
	{"github.com/wneessen/go-mail", "mail"},
	{"github.com/emersion", "mail/mailtest"}, // a mail server, for tests
	{"github.com/zalando/go-keyring", "cmd/holdfast/internal/signin"},
	{"github.com/itchyny/gojq", "cmd/holdfast/internal/output"},
}

// Tests may import what they like, except these: a test that needs a database
// asks storetest for one.
var alsoInTests = []string{"modernc.org/sqlite", "github.com/jackc/pgx", "github.com/pressly/goose"}

// The programs of others that import client get none of the server's libraries.
var notBelowClient = []string{
	"github.com/grpc-ecosystem/grpc-gateway", "modernc.org/sqlite", "github.com/jackc/pgx", "github.com/prometheus",
}

func TestClientIsLight(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./client").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		if slices.ContainsFunc(notBelowClient, func(lib string) bool { return within(dep, lib) }) {
			t.Errorf("client depends on %s", dep)
		}
	}
}

func TestArchitecture(t *testing.T) {
	for _, p := range listPackages(t) {
		allowed, listed := importsOf(p.name)
		if !listed {
			t.Errorf("package %s is not in mayImport: say where it belongs", p.name)
			continue
		}
		for _, imp := range p.Imports {
			if in, ours := strings.CutPrefix(imp, module+"/"); ours && !matches(allowed, in) {
				t.Errorf("%s imports %s, which mayImport does not grant it", p.name, in)
			}
			checkHome(t, p.name, imp)
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			if slices.ContainsFunc(alsoInTests, func(lib string) bool { return within(imp, lib) }) {
				checkHome(t, p.name, imp)
			}
		}
	}
}

// checkHome fails the test if imp is a library that does not belong in pkg.
func checkHome(t *testing.T, pkg, imp string) {
	t.Helper()
	for _, rule := range onlyIn {
		if within(imp, rule.library) && !matches(rule.homes, pkg) {
			t.Errorf("%s imports %s, which belongs in %s", pkg, imp, rule.homes)
		}
	}
}

// A listedPackage is a package as `go list` describes it, and its name within
// the module: "" is the root.
type listedPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string

	name string
}

// listPackages lists also what does not compile (-e): that is for the package's
// own tests to say.
func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e",
		"-json=ImportPath,Imports,TestImports,XTestImports", "./...").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []listedPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.name = strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		all = append(all, p)
	}
}

// importsOf returns the line of mayImport for pkg. The root holds this test and
// nothing else.
func importsOf(pkg string) (imports string, listed bool) {
	if pkg == "" {
		return "", true
	}
	for _, rule := range mayImport {
		if matches(rule.pkg, pkg) {
			return rule.imports, true
		}
	}
	return "", false
}

// matches reports whether one of the patterns, separated by spaces, stands for
// pkg.
func matches(patterns, pkg string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(p string) bool {
		if p == "..." {
			return true
		}
		if parent, all := strings.CutSuffix(p, "/..."); all {
			return within(pkg, parent)
		}
		return p == pkg
	})
}

// within reports whether path is parent or below it.
func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}
