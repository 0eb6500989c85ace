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

// Shared parts of the table below: the packages of the command, and the packages that
// every package above sign-in may import.
const (
	cli     = "cmd/holdfast/internal/"
	cliBase = "client gen/... " + cli + "output " + cli + "problem " + cli + "settings " + cli + "signin " +
		"platform/buildinfo "
)

// mayImport lists what each package may import. A package imports only what its line
// lists. Read from top to bottom, the table is the architecture. Names are relative to
// internal/ or to the root. A name that ends in /... stands for everything below it, and
// "..." alone stands for everything.
var mayImport = []struct{ pkg, imports string }{
	{"core/fault", ""},
	{"core/page", "core/fault"},
	{"core/resource", "core/fault"},
	{"registry", "core/resource"},
	{"vuln", "core/resource"},
	{"platform/secret", ""},
	{"platform/buildinfo", ""},
	{"platform/fairlimit", "core/fault core/resource"},
	{"platform/trace", ""},
	{"platform/metric", ""},
	{"testkit", "core/fault core/resource"},
	{"testkit/testprogram", ""},
	{"platform/blob", ""},
	{"platform/blob/blobtest", "platform/blob testkit/testprogram"},
	{"platform/outbound", "platform/trace"},
	{"platform/outbound/outboundtest", ""},
	{"store/schema", ""},
	{"store/allowance", ""},
	{"store/bell", ""},
	{"store/engine", "core/fault platform/trace store/schema"},
	{"store/field", "core/resource"},
	{"store/replica", "core/fault store/engine"},
	{"store/access", "core/resource store/engine"},
	{"store", "core/fault core/page core/resource platform/trace " +
		"store/access store/allowance store/bell store/engine store/field store/replica store/schema"},
	{"store/grouprule", "core/fault core/resource store"},
	{"store/tablecache", "store"},
	{"store/lease", "core/fault store"},
	{"store/recount", "core/resource store"},
	{"store/outbox", "core/resource store"},
	{"store/watch", "core/resource store store/lease store/outbox"},
	{"store/readbatch", "core/fault platform/trace store"},
	{"store/health", "store store/schema"},
	{"store/dump", "core/fault store store/health store/schema"},
	{"access/sessiondb", "core/fault core/resource store"},
	{"access/budgetdb", "core/fault core/page core/resource store store/grouprule"},
	{"access/namedb", "core/fault core/resource store"},
	{"signin/scimdb", "core/fault core/resource store"},
	{"access/iamdb", "access/namedb access/sessiondb core/fault core/page core/resource signin/scimdb store " +
		"store/engine store/grouprule"},
	{"access/workload", ""},
	{"access/grantlog", "access/iamdb core/fault core/page core/resource store store/grouprule"},
	{"signin/signindb", "core/fault core/page core/resource store store/grouprule"},
	{"signin/tokendb", "core/fault core/resource store"},
	{"store/bitmap", ""},
	{"registry/registrydb", "core/fault core/page core/resource platform/metric registry store store/bitmap " +
		"store/engine store/grouprule store/readbatch"},
	{"registry/gcdb", "core/resource registry registry/registrydb store"},
	{"registry/imagedb", "core/fault core/resource registry registry/registrydb store store/bitmap " +
		"store/engine store/grouprule"},
	{"registry/pulldb", "core/resource registry/imagedb registry/registrydb store"},
	{"registry/retentiondb", "core/fault core/resource registry registry/registrydb store store/grouprule"},
	{"registry/signerdb", "core/fault core/page core/resource registry registry/registrydb store " +
		"store/grouprule"},
	{"registry/sourcedb", "core/fault core/page core/resource registry registry/registrydb store " +
		"store/grouprule store/tablecache"},
	{"vuln/advisory/version", "core/fault vuln"},
	{"vuln/findingdb", "core/fault core/page core/resource registry registry/imagedb registry/registrydb " +
		"store store/bitmap store/engine store/grouprule store/tablecache vuln vuln/advisory/advisorydb"},
	{"vuln/advisory/advisorydb", "core/fault core/page core/resource platform/metric store store/engine " +
		"store/grouprule vuln vuln/advisory/version"},
	{"events/eventdb", "core/fault core/page core/resource store store/grouprule"},
	{"platform/mail/maildb", "core/resource store store/grouprule"},
	{"store/plantest", "store"},
	{"access/admission", "access/budgetdb access/grantlog access/iamdb access/sessiondb core/fault core/resource " +
		"events/eventdb platform/mail/maildb platform/secret registry registry/imagedb registry/registrydb " +
		"registry/retentiondb registry/signerdb registry/sourcedb signin/scimdb signin/signindb signin/tokendb " +
		"store store/grouprule vuln/advisory/advisorydb vuln/findingdb"},
	{"store/dbtest", "core/fault core/resource store store/dump store/outbox store/recount store/replica testkit"},
	{"access/iamtest", "access/admission access/budgetdb access/grantlog access/iamdb core/fault core/page " +
		"core/resource signin/signindb signin/tokendb store store/dbtest testkit"},
	{"events/eventdb/eventtest", "access/admission access/iamdb access/iamtest core/resource events/eventdb store " +
		"store/dbtest testkit"},
	{"registry/registrytest", "access/admission access/budgetdb access/iamdb access/iamtest core/fault core/page " +
		"core/resource registry registry/gcdb registry/imagedb registry/pulldb registry/registrydb " +
		"registry/retentiondb registry/signerdb registry/sourcedb store store/dbtest testkit"},
	{"vuln/vulntest", "access/admission access/iamdb access/iamtest core/resource registry registry/imagedb " +
		"registry/pulldb registry/registrydb registry/registrytest store store/dbtest testkit vuln " +
		"vuln/advisory/advisorydb vuln/findingdb"},
	{"events/denials", "core/resource store"},
	{"store/storetest", "access/admission access/budgetdb access/grantlog access/iamdb events/eventdb registry/gcdb " +
		"registry/imagedb registry/pulldb registry/registrydb registry/retentiondb registry/signerdb " +
		"registry/sourcedb signin/signindb signin/tokendb store store/dbtest store/recount " +
		"vuln/advisory/advisorydb vuln/findingdb"},
	{"access/authz", "access/grantlog access/iamdb core/fault core/page core/resource platform/trace store " +
		"store/access store/replica"},
	{"access/budget", "access/authz access/budgetdb access/iamdb core/fault core/page core/resource store"},
	{"vuln/advisory/format", "core/fault vuln vuln/advisory/version"},
	{"vuln/advisory/fetch", "core/fault platform/outbound vuln/advisory/format"},
	{"vuln/advisory", "access/authz core/fault core/page core/resource platform/metric platform/trace store " +
		"vuln vuln/advisory/advisorydb vuln/advisory/fetch vuln/advisory/format vuln/advisory/version"},
	{"registry/evidence", ""},
	{"registry/signature", ""},
	{"registry/signature/signaturetest", ""},
	{"vuln/inspect/layer", ""},
	{"vuln/inspect/extract", "vuln/advisory/version vuln/inspect/layer"},
	// The child process of inspect must not depend on other packages.
	{"vuln/inspect", "registry/evidence vuln/advisory/version vuln/inspect/extract vuln/inspect/layer"},
	{"vuln/inspect/inspecttest", ""},
	{"platform/mail", "core/resource platform/mail/maildb platform/metric platform/secret store"},
	{"platform/mail/mailtest", "testkit"},
	{"access/iam", "access/admission access/authz access/grantlog access/iamdb access/namedb core/fault core/page " +
		"core/resource platform/mail platform/secret signin/signindb store"},
	{"access/simulation", "access/authz access/grantlog access/iam access/iamdb core/fault core/resource " +
		"platform/fairlimit registry store"},
	{"signin/token", "access/authz core/fault core/resource platform/metric platform/secret " +
		"platform/trace signin/tokendb store"},
	{"signin/issuers", "platform/metric platform/outbound platform/trace"},
	{"signin/sts", "access/authz access/iamdb core/fault core/resource platform/metric platform/outbound " +
		"platform/trace signin/issuers signin/scimdb signin/token signin/tokendb store"},
	{"registry/upstream/challenge", ""},
	{"registry/upstream/link", ""},
	{"registry/upstream/upstreamtest", "testkit/testprogram"},
	{"registry/upstream", "platform/outbound registry/upstream/challenge registry/upstream/link"},
	{"registry/oci", "core/fault core/resource registry"},
	{"registry/upload", "core/fault core/resource platform/blob platform/trace registry registry/oci " +
		"registry/registrydb store/access"},
	{"registry/mirror", "access/iamdb core/fault core/resource platform/fairlimit platform/metric " +
		"platform/secret registry registry/oci registry/registrydb registry/sourcedb registry/upload " +
		"registry/upstream signin/token store store/access store/tablecache"},
	{"registry/images", "core/fault core/resource platform/fairlimit platform/metric registry " +
		"registry/evidence registry/imagedb registry/oci registry/registrydb registry/signature " +
		"registry/signerdb registry/upload"},
	{"registry/pulllog", "access/authz core/resource registry registry/pulldb registry/registrydb"},
	{"registry/protocol", "access/authz access/iamdb core/fault core/page core/resource events/denials " +
		"platform/metric platform/trace registry registry/images registry/mirror registry/oci " +
		"registry/pulllog registry/registrydb registry/upload signin/issuers signin/token store store/access"},
	{"registry/imagecopy", "core/fault core/resource registry registry/oci registry/registrydb"},
	{"registry/reposync", "access/authz core/fault core/resource platform/fairlimit platform/metric registry " +
		"registry/imagecopy registry/mirror registry/oci registry/registrydb registry/sourcedb store/watch"},
	{"registry/replication", "access/authz core/fault core/resource platform/fairlimit platform/metric " +
		"platform/secret registry registry/imagecopy registry/images registry/mirror registry/pulllog registry/registrydb " +
		"registry/reposync registry/sourcedb registry/upload registry/upstream signin/token store/watch"},
	{"registry/upkeep", "core/fault core/resource platform/blob platform/fairlimit platform/metric registry " +
		"registry/gcdb registry/registrydb registry/retentiondb registry/upload"},
	{"registry/metadata", "access/authz access/iamdb core/fault core/page core/resource platform/outbound " +
		"platform/secret registry registry/evidence registry/imagecopy registry/imagedb registry/images " +
		"registry/mirror registry/pulldb registry/registrydb registry/replication registry/reposync registry/retentiondb " +
		"registry/signature registry/signerdb registry/sourcedb registry/upkeep store"},
	{"registry/assembly", "access/authz access/iamdb core/page core/resource events/denials platform/blob " +
		"platform/metric platform/outbound platform/secret registry/imagecopy registry/images " +
		"registry/metadata registry/mirror registry/protocol registry/pulllog registry/registrydb " +
		"registry/replication registry/reposync registry/retentiondb registry/upkeep registry/upload registry/upstream " +
		"signin/token store"},
	{"vuln/finding", "access/authz core/fault core/resource platform/fairlimit registry registry/evidence store " +
		"vuln vuln/advisory/advisorydb vuln/advisory/format vuln/advisory/version vuln/findingdb"},
	{"vuln/exception", "core/resource registry vuln vuln/advisory/version vuln/finding vuln/findingdb"},
	{"vuln/indexer", "core/fault platform/metric registry registry/imagedb registry/images store " +
		"vuln/advisory/version vuln/findingdb vuln/inspect"},
	{"vuln/match", "access/iamdb core/fault core/resource registry registry/imagedb store store/lease vuln " +
		"vuln/advisory/advisorydb vuln/advisory/version vuln/finding vuln/findingdb"},
	{"vuln/policy", "access/authz core/fault core/page core/resource platform/fairlimit platform/metric registry " +
		"registry/imagedb registry/metadata registry/oci registry/pulldb registry/registrydb store store/tablecache vuln " +
		"vuln/advisory/advisorydb vuln/advisory/format vuln/advisory/version vuln/exception vuln/finding " +
		"vuln/findingdb"},
	{"vuln/timeline", "core/resource registry registry/imagedb store vuln vuln/exception vuln/finding vuln/findingdb"},
	{"vuln/query", "access/authz core/fault core/page core/resource registry registry/evidence " +
		"registry/imagedb registry/metadata registry/registrydb store vuln vuln/advisory/advisorydb " +
		"vuln/advisory/format vuln/advisory/version vuln/exception vuln/finding vuln/findingdb vuln/timeline"},
	{"vuln/inventory", "access/authz core/fault core/page core/resource registry/registrydb store vuln " +
		"vuln/findingdb"},
	{"vuln/blast", "access/authz access/iam access/iamdb core/fault core/page core/resource registry " +
		"registry/imagedb registry/metadata registry/pulldb registry/registrydb store vuln/finding " +
		"vuln/findingdb vuln/query"},
	{"vuln/trend", "access/authz core/fault core/resource vuln vuln/findingdb vuln/query"},
	{"vuln/report", "access/authz access/iam access/iamdb core/fault core/page core/resource platform/mail registry " +
		"registry/metadata store vuln vuln/finding vuln/findingdb vuln/query"},
	{"ops/backup", "core/fault platform/blob platform/secret registry registry/registrydb store store/dump " +
		"store/recount"},
	{"signin/input", "core/resource"},
	{"signin/password", "core/fault core/resource"},
	{"signin/factor", "core/fault core/resource platform/secret signin/input signin/signindb"},
	{"signin/provider", "core/resource platform/outbound platform/secret signin/input signin/signindb"},
	{"signin/accounts", "access/admission access/authz access/iamdb core/fault core/page core/resource " +
		"platform/mail signin/password signin/signindb store"},
	{"signin/site", "access/iamdb core/fault core/resource events/denials platform/metric platform/secret " +
		"platform/trace signin/input signin/signindb"},
	{"signin/selfservice", "access/authz access/iamdb core/fault core/resource signin/accounts signin/factor " +
		"signin/input signin/password signin/signindb signin/site store"},
	{"signin/login", "access/admission access/authz access/iamdb core/fault core/resource events/denials " +
		"platform/mail platform/metric platform/secret signin/accounts signin/factor signin/input " +
		"signin/password signin/provider signin/selfservice signin/signindb signin/site signin/sts store"},
	{"signin/scim/document", ""},
	{"signin/scim/filter", "signin/scim/document"},
	{"signin/scim/patch", "signin/scim/document signin/scim/filter"},
	{"signin/scim", "access/authz access/iamdb access/sessiondb core/fault core/resource platform/fairlimit " +
		"signin/input signin/scim/document signin/scim/filter signin/scim/patch signin/scimdb store"},
	{"events/event", "access/authz core/fault core/page core/resource events/eventdb platform/metric " +
		"platform/outbound platform/trace signin/token store store/lease store/outbox"},
	{"ops/search", "access/authz access/iam core/fault core/page core/resource events/event registry " +
		"registry/metadata store vuln vuln/advisory vuln/query"},
	{"ops/organization", "access/authz access/iam access/iamdb access/simulation core/fault core/resource events/event " +
		"platform/fairlimit platform/secret store store/outbox"},
	{"ops/status", "access/authz access/iamdb core/fault core/resource signin/token store store/health"},
	{"api/wire", "core/fault core/page core/resource events/event gen/..."},
	{"api/v2/accessapi", "access/budget access/iam access/simulation api/wire core/fault core/resource " +
		"gen/... ops/search signin/accounts signin/input signin/login signin/provider signin/scim signin/sts"},
	{"api/v2/registryapi", "api/wire core/fault core/resource gen/... registry registry/images " +
		"registry/metadata"},
	{"api/v2/vulnapi", "api/wire core/fault core/resource gen/... registry vuln vuln/advisory " +
		"vuln/advisory/format vuln/blast vuln/finding vuln/inventory vuln/policy vuln/query " +
		"vuln/report vuln/trend"},
	{"api/v2", "access/budget access/iam access/simulation api/v2/accessapi api/v2/registryapi api/v2/vulnapi " +
		"api/wire core/fault core/resource events/event gen/... ops/organization ops/search ops/status registry " +
		"registry/metadata signin/accounts signin/login signin/scim signin/sts vuln/advisory vuln/blast vuln/inventory " +
		"vuln/policy vuln/query vuln/report vuln/trend"},
	{"api/v1", "access/iam api/v2 api/v2/accessapi api/v2/registryapi api/v2/vulnapi api/wire core/fault " +
		"core/page core/resource events/event gen/... ops/status registry registry/evidence registry/images " +
		"registry/metadata signin/accounts signin/login signin/scim signin/sts vuln vuln/advisory vuln/query"},
	{"api", "access/authz api/v1 api/v2 api/v2/vulnapi api/wire core/fault core/resource events/event gen/... " +
		"platform/metric platform/trace signin/token store/access vuln vuln/advisory vuln/advisory/format"},
	{"api/reference", ""},
	{"api/manual", "api/reference"},
	{"console", ""},
	{"docs", ""},
	{"server/config", "core/fault core/resource platform/blob platform/buildinfo platform/mail " +
		"platform/outbound platform/secret platform/trace registry/signature signin/issuers signin/token"},
	{"server/installation", "access/iamdb core/fault platform/secret registry/registrydb registry/sourcedb " +
		"server/config signin/signindb signin/tokendb store store/health"},
	{"server/maintenance", "access/admission access/iamdb core/fault core/resource ops/backup platform/blob " +
		"platform/buildinfo platform/secret registry registry/registrydb server/config server/installation " +
		"signin/tokendb store store/health store/schema vuln/inspect"},
	{"server/listen", "api core/resource"},
	{"server/listen/listentest", ""},
	{"server", "..."},
	{"cmd/holdfastd", "core/fault platform/buildinfo server server/config server/maintenance vuln/inspect"},
	{"client", "gen/..."},
	{cli + "problem", ""},
	{cli + "output", "gen/... " + cli + "problem"},
	{cli + "settings", "client " + cli + "output " + cli + "problem"},
	{cli + "signin", "client gen/... " + cli + "output " + cli + "problem " + cli + "settings platform/buildinfo"},
	{cli + "noun", cliBase},
	{cli + "transfer", cli + "problem registry/upstream/challenge registry/upstream/link"},
	{cli + "iam/recipe", "gen/..."},
	{cli + "budget", "gen/... " + cli + "noun " + cli + "output"},
	{cli + "iam", cliBase + cli + "budget " + cli + "iam/recipe " + cli + "noun access/workload"},
	{cli + "orgfile/model", cliBase + cli + "noun"},
	{cli + "orgfile/format", cliBase + cli + "noun " + cli + "orgfile/model"},
	{cli + "orgfile/state", cliBase + cli + "noun " + cli + "orgfile/format " + cli + "orgfile/model"},
	{cli + "orgfile/plan", cliBase + cli + "noun " + cli + "orgfile/format " + cli + "orgfile/model"},
	{cli + "orgfile", cliBase + cli + "noun " + cli + "orgfile/..."},
	{cli + "report", cliBase + cli + "noun"},
	{cli + "kubernetes", cliBase + cli + "iam " + cli + "noun"},
	{cli + "registry", cliBase + cli + "iam " + cli + "noun " + cli + "report " + cli + "transfer"},
	{cli + "inventory/running", "gen/..."},
	{cli + "inventory", cliBase + cli + "inventory/running " + cli + "noun " + cli + "registry"},
	{cli + "advisories", cliBase + cli + "noun"},
	{cli + "events", cliBase + cli + "iam " + cli + "noun"},
	{cli + "auth", cliBase + cli + "iam " + cli + "noun " + cli + "registry"},
	{"cmd/holdfast-credential-provider", "platform/buildinfo"},
	{"cmd/holdfast", cliBase + cli + "..."},
	{"gen/...", "gen/..."},
	{"proto/generate", ""},
	{"test/bench/...", "..."},
	{"test/e2e/...", "..."},
}

// onlyIn lists the packages that may import a third-party library. Any package may import
// a library that is not in the table.
var onlyIn = []struct{ library, homes string }{
	{"modernc.org/sqlite", "store/engine store/plantest store/storetest vuln/inspect/extract test/bench/rig test/e2e"},
	{"github.com/jackc/pgx", "store store/engine store/replica store/plantest store/dbtest test/bench/rig test/e2e"},
	{"github.com/pressly/goose", "store store/schema store/engine store/plantest store/dbtest test/bench/rig test/e2e"},
	{"google.golang.org/grpc", "api/... server client cmd/holdfast/internal/... gen/... proto/generate " +
		"test/bench/... test/e2e"},
	{"google.golang.org/genproto", "api/... server client cmd/holdfast/internal/... gen/... proto/generate " +
		"test/bench/... test/e2e"},
	{"github.com/grpc-ecosystem/grpc-gateway", "api test/e2e"},
	{"github.com/go-jose/go-jose", "signin/token signin/issuers"},
	{"github.com/prometheus", "platform/metric server api test/bench/access"},
	{"go.opentelemetry.io", "platform/trace"},
	{"github.com/yuin/goldmark", "api/manual registry/metadata"},
	{"github.com/minio", "platform/blob"},
	{"github.com/opencontainers", "registry/oci registry/upload registry/mirror registry/images registry/protocol " +
		"registry/upkeep registry/metadata registry/assembly"},
	{"github.com/sigstore", "registry/signature registry/signature/signaturetest"},
	{"github.com/microcosm-cc/bluemonday", "registry/metadata"},
	{"github.com/package-url", "vuln/advisory/version"},
	{"github.com/pandatix", "vuln/advisory/format"},
	{"github.com/coreos/go-oidc", "signin/provider"},
	{"golang.org/x/oauth2", "signin/provider"},
	{"github.com/go-webauthn/webauthn", "signin/factor"},
	{"github.com/pquerna/otp", "signin/factor"},
	{"github.com/ccojocar/zxcvbn-go", "signin/password"},
	{"github.com/google/osv-scalibr", "vuln/inspect/extract"},
	{"github.com/erikvarga/go-rpmdb", "vuln/inspect/extract"},
	{"github.com/klauspost/compress", "vuln/inspect/layer test/bench/vulnerability"},
	{"github.com/landlock-lsm", "vuln/inspect"},
	{"github.com/wneessen/go-mail", "platform/mail"},
	{"github.com/emersion", "platform/mail/mailtest"}, // a mail server that only tests use
	{"github.com/zalando/go-keyring", "cmd/holdfast/internal/signin"},
	{"github.com/itchyny/gojq", "cmd/holdfast/internal/output"},
}

// alsoInTests are the libraries that not even tests may import outside of their packages.
// A test that needs a database gets it from dbtest. Tests may import anything else.
var alsoInTests = []string{"modernc.org/sqlite", "github.com/jackc/pgx", "github.com/pressly/goose"}

// notBelowClient are libraries of the server that package client must not import, even
// indirectly, because programs of other people import client.
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
			if in, ours := strings.CutPrefix(imp, module+"/"); ours && !matches(allowed, short(in)) {
				t.Errorf("%s imports %s, which mayImport does not allow", p.name, short(in))
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

// A listedPackage is a package as `go list` describes it, with its name relative to the
// module. The name of the root is "".
type listedPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string

	name string
}

// listPackages lists the packages of this module and of test/. A package that does not
// compile is listed, too (-e), because its own tests report the error.
func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	return append(listModule(t, "."), listModule(t, "test")...)
}

func listModule(t *testing.T, dir string) []listedPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", dir, "-e",
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
		p.name = short(strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/"))
		all = append(all, p)
	}
}

// short returns the name of a package in the tables: its path without internal/.
func short(path string) string { return strings.TrimPrefix(path, "internal/") }

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

// matches reports whether one of the patterns, separated by spaces, matches pkg.
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
