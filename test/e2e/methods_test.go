package e2e_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A way is a way to call the methods: a protocol, the versions of the methods, and the names of the services.
type way struct {
	protocol string // name of the protocol in docs/methods.md
	public   bool   // whether services have their names in the public API
	versions []string
}

// ways are all ways to call the methods. Each way gets a world of its own, because a resource can be created or
// deleted only once.
var ways = []way{
	{"JSON", false, []string{"v1", "v2beta1"}}, {"JSON", false, []string{"v2"}},
	{"gRPC", false, []string{"v1", "v2beta1"}}, {"gRPC", false, []string{"v2"}},
	{"gRPC, public name", true, []string{"v1", "v2beta1"}}, {"gRPC, public name", true, []string{"v2"}},
}

// An outcome is the result of calling a method in one way.
type outcome struct {
	service, method, version, protocol string
	state                              string
}

// TestApiMethods calls every method of the public API in every way, and compares the results with docs/methods.md.
func TestApiMethods(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var outcomes []outcome
	t.Run("ways", func(t *testing.T) {
		for _, way := range ways {
			t.Run(way.protocol+" "+strings.Join(way.versions, " "), func(t *testing.T) {
				t.Parallel()
				w := serve(t, storetest.SQLite(t), server.Config{}, seedPeople(t))
				got := w.tryWay(t, way)
				mu.Lock()
				defer mu.Unlock()
				outcomes = append(outcomes, got...)
			})
		}
	})
	if t.Failed() {
		return
	}
	checkGolden(t, filepath.Join("..", "..", "..", "docs", "methods.md"), methodsPage(outcomes))
}

// bob is a person whose e-mail address has the same domain as ada's address.
var bob = resource.UserUID("https://people.example", "bob")

// seedPeople creates ada and bob. It also creates a finished sign-in for a terminal, whose key consists of zeros.
func seedPeople(t *testing.T) func(*storetest.Store) {
	return func(s *storetest.Store) {
		seedAda(t)(s)
		now := time.Now().UTC().Truncate(time.Millisecond)
		err := s.InsertIdentity(t.Context(), resource.Identity{
			UID: bob, Realm: string(peopleProvider.Provider()), Provider: peopleProvider.Provider(), Name: "bob",
			Email: "bob@people.example", CreateTime: now, UpdateTime: now, LastSeenTime: now,
			Relationship: resource.Relationship{
				ClaimMatch: &resource.ClaimMatch{Issuer: "https://people.example", Subject: "bob"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		waiting := sha256.Sum256([]byte("headless " + base64.RawURLEncoding.EncodeToString(make([]byte, 32))))
		if err := s.PutHandoff(t.Context(), waiting[:], []byte(`{"key":"k"}`), now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}

// methodExamples returns an example request for each operation. The request succeeds if any request can succeed.
func methodExamples(t *testing.T, w *world) map[string]example {
	t.Helper()
	x := w.makeThings(t)
	chosen := map[string]example{}
	for _, examples := range []map[string][]example{
		openAPIExamples(t, w, x), federationExamples(t, w, x), registryExamples(t, w, x), exchangeExamples(w, x),
		v1Examples(t, w, x), registryV1Examples(t, w, x),
		attachedV1Examples(t, w, x), advisoryV1Examples(t, w, x), advisoryExamples(t, w, x), signInExamples(t, w, x),
		eventExamples(t, w, x),
	} {
		chooseExamples(chosen, examples)
	}
	viewer := string(resource.ManagedRoleUID("viewer"))
	idp := w.post(t, "/iam/v2beta1/identityProviders/"+x.org,
		`{"name":"gone","defaultRole":"`+viewer+`",`+
			`"oidc":{"issuer":"https://gone.example","clientId":"c","clientSecret":"s"}}`)
	chosen["V1_IdentityProviders_Delete"] = example{uid: idp}
	chosen["IdentitiesService_LookupIdentity"] = example{query: "issuer=https://x.example&subject=x"}
	chosen["V1_Groups_RequestGroupAccess"] = example{
		uid: string(resource.DerivedUID("people")), body: `{}`, as: w.mint(t, bob, token.Claims{Voucher: peopleProvider}),
	}
	chosen["V1_GroupInvites_CreateWithGroup"] = example{
		body: `{"group":"` + x.folder + `","role":"` + viewer + `","ttl":"3600s"}`,
	}
	return chosen
}

// chooseExamples adds one example for each operation to chosen.
func chooseExamples(chosen map[string]example, examples map[string][]example) {
	for id, list := range examples {
		i := max(0, slices.IndexFunc(list, func(e example) bool { return !e.fails && !e.all }))
		chosen[id] = list[i]
	}
}

// operationOf returns the name that a method has in the OpenAPI description.
func operationOf(m protoreflect.MethodDescriptor) string {
	service := string(m.Parent().Name())
	if versionOf(m) == "v1" && versioned(m) {
		if m.ParentFile().Package() == "holdfast.events.v1" && service == "Identities" {
			service = "Event" + service
		}
		service = "V1_" + service
	}
	return service + "_" + string(m.Name())
}

// versioned reports whether the name of a method's package contains a version.
func versioned(m protoreflect.MethodDescriptor) bool {
	return strings.Contains(string(m.ParentFile().Package().Name()), "v")
}

// versionOf returns the API version of a method. A method in a package without a version belongs to v1.
func versionOf(m protoreflect.MethodDescriptor) string {
	if m.ParentFile().Package().Name() == "v2beta1" {
		return "v2beta1"
	}
	return "v1"
}

// publicNames returns a map from our names of services to the names in the public API. The server reports these
// names.
func (w *world) publicNames(t *testing.T) map[protoreflect.FullName]string {
	t.Helper()
	services := w.listServices(t)
	names := map[protoreflect.FullName]string{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i).FullName()
			ours, ok := strings.CutPrefix(string(s), "holdfast.")
			if !ok {
				continue
			}
			for _, name := range services {
				if strings.HasPrefix(name, "holdfast.") || strings.HasPrefix(name, "grpc.") {
					continue
				}
				if strings.HasSuffix(name, "."+ours) || strings.HasSuffix(name, "."+strings.Replace(ours, ".v1.", ".", 1)) {
					names[s] = name
				}
			}
		}
		return true
	})
	return names
}

// tryWay calls all methods in one way. Methods that delete resources come last.
func (w *world) tryWay(t *testing.T, way way) (outcomes []outcome) {
	t.Helper()
	names := w.publicNames(t)
	if len(names) < 30 {
		t.Errorf("the public API has %d services: %v", len(names), names)
	}
	examples := methodExamples(t, w)
	var methods []protoreflect.MethodDescriptor
	for service := range names {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(service)
		if err != nil {
			t.Fatal(err)
		}
		list := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range list.Len() {
			methods = append(methods, list.Get(i))
		}
	}
	slices.SortFunc(methods, func(a, b protoreflect.MethodDescriptor) int {
		return strings.Compare(deletesLast(a), deletesLast(b))
	})
	for _, m := range methods {
		version := versionOf(m)
		if version == "v2beta1" && !slices.Contains(way.versions, version) {
			version = "v2"
		}
		if !slices.Contains(way.versions, version) {
			continue
		}
		e, ok := examples[operationOf(m)]
		if !ok {
			t.Errorf("no example calls %s", operationOf(m))
			continue
		}
		state := "not offered: the public API has it over gRPC alone"
		if way.protocol != "JSON" {
			state = w.stateOverGRPC(t, m, called(m, version, way.public, names), e)
		} else if rule(m) != nil {
			state = w.stateOverHTTP(t, m, version, e)
		}
		outcomes = append(outcomes, outcome{string(m.Parent().FullName()), string(m.Name()), version, way.protocol, state})
	}
	return outcomes
}

// deletesLast returns a key for sorting methods. Methods that delete resources come last.
func deletesLast(m protoreflect.MethodDescriptor) string {
	return fmt.Sprint(strings.Contains(string(m.Name()), "Delete")) + operationOf(m)
}

// called returns the full name of a method in a version. The service has its public name if public is set, and
// otherwise our name.
func called(
	m protoreflect.MethodDescriptor, version string, public bool, names map[protoreflect.FullName]string,
) string {
	service := string(m.Parent().FullName())
	if public {
		service = names[m.Parent().FullName()]
	}
	if version == "v2" {
		service = strings.Replace(service, ".v2beta1.", ".v2.", 1)
	}
	return "/" + service + "/" + string(m.Name())
}

func rule(m protoreflect.MethodDescriptor) *annotations.HttpRule {
	r, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	return r
}

// state describes the result of a call in words that are the same in every run.
func state(t *testing.T, m protoreflect.MethodDescriptor, code codes.Code, message string) string {
	t.Helper()
	switch code {
	case codes.OK:
		return "works"
	case codes.Unimplemented, codes.Internal, codes.Unknown, codes.Unavailable, codes.Unauthenticated,
		codes.PermissionDenied, codes.InvalidArgument:
		t.Errorf("%s: %v: %s", m.FullName(), code, message)
	}
	return "refused: " + normalize(message)
}

func (w *world) stateOverHTTP(t *testing.T, m protoreflect.MethodDescriptor, version string, e example) string {
	t.Helper()
	verb, path := methodPath(m, e)
	if version == "v2" {
		path = strings.Replace(path, "/v2beta1/", "/v2/", 1)
	}
	if e.query != "" {
		path += "?" + e.query
	}
	r := w.send(t, e.bearer(w), verb, path, e.body)
	if r.status == http.StatusOK {
		return "works"
	}
	var failed struct {
		Code    codes.Code
		Message string
	}
	if err := json.Unmarshal([]byte(r.body), &failed); err != nil {
		t.Fatalf("%s %s: %v\n%s", verb, path, err, r.body)
	}
	return state(t, m, failed.Code, failed.Message)
}

// bearer returns the token with which an example is sent. It is the owner's token unless the example names another.
func (e example) bearer(w *world) string {
	if e.as != "" {
		return e.as
	}
	return w.Token
}

// methodPath returns the verb and the path of a method's http option. The values in the path come from an example.
func methodPath(m protoreflect.MethodDescriptor, e example) (verb, path string) {
	verb, template := verbAndPath(rule(m))
	return verb, pathVariable.ReplaceAllStringFunc(template,
		func(v string) string { return e.value(pathVariable.FindStringSubmatch(v)[1]) })
}

// value returns the value that an example has for a path variable.
func (e example) value(variable string) string {
	if variable == "digest" || variable == "reference" {
		return e.digest
	}
	return e.uid
}

func (w *world) stateOverGRPC(t *testing.T, m protoreflect.MethodDescriptor, name string, e example) string {
	t.Helper()
	out := newOutput(t, m)
	st := status.Convert(w.conn.Invoke(bearing(t, e.bearer(w)), name, e.message(t, m), out))
	return state(t, m, st.Code(), st.Message())
}

// message returns the request message for a method, with the path variables, the body and the query of an example.
func (e example) message(t *testing.T, m protoreflect.MethodDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	in := kind.New().Interface()
	r := rule(m)
	body := e.body
	if name := r.GetBody(); body != "" && name != "*" && r != nil {
		body = `{"` + name + `":` + body + `}`
	}
	if body != "" {
		if err := protojson.Unmarshal([]byte(body), in); err != nil {
			t.Fatalf("%s: %v\n%s", m.FullName(), err, body)
		}
	}
	values, err := url.ParseQuery(e.query)
	if err != nil {
		t.Fatal(err)
	}
	if r != nil {
		_, template := verbAndPath(r)
		for _, v := range pathVariable.FindAllStringSubmatch(template, -1) {
			if !values.Has(v[1]) {
				values.Set(v[1], e.value(v[1]))
			}
		}
	}
	if err := runtime.PopulateQueryParameters(in, values, utilities.NewDoubleArray(nil)); err != nil {
		t.Fatalf("%s: %v", m.FullName(), err)
	}
	return in
}

// methodsPage returns the text of docs/methods.md. Ways with the same result share a row.
func methodsPage(outcomes []outcome) string {
	var b strings.Builder
	b.WriteString(methodsPreface)
	services := map[string]map[string][]outcome{}
	for _, o := range outcomes {
		if services[o.service] == nil {
			services[o.service] = map[string][]outcome{}
		}
		services[o.service][o.method] = append(services[o.service][o.method], o)
	}
	for _, service := range slices.Sorted(maps.Keys(services)) {
		fmt.Fprintf(&b, "\n## %s\n\n| method | version | protocol | state |\n|---|---|---|---|\n", service)
		for _, method := range slices.Sorted(maps.Keys(services[service])) {
			for _, row := range rows(services[service][method]) {
				fmt.Fprintf(&b, "| %s | %s |\n", method, row)
			}
		}
	}
	return b.String()
}

const methodsPreface = `# The methods of the public API, and their state here

` + "`go test -C test ./e2e -run TestApiMethods -update`" + ` writes this page. ` +
	`It calls each method of every version on a running server,
over gRPC under our own name and under the public API's (see [clients.md](clients.md)), and as JSON. *Works* means that
a valid request succeeded; *refused* gives the server's reason for refusing a valid request. Only the services for
terms, overlays and custom assembly are not implemented.
`

// rows returns a table row for each state, with the versions and protocols that have this state.
func rows(outcomes []outcome) []string {
	states := map[string][]outcome{}
	for _, o := range outcomes {
		states[o.state] = append(states[o.state], o)
	}
	var out []string
	for _, s := range slices.Sorted(maps.Keys(states)) {
		set := func(f func(outcome) string) string {
			var names []string
			for _, o := range states[s] {
				names = append(names, f(o))
			}
			slices.Sort(names)
			return strings.Join(slices.Compact(names), "; ")
		}
		out = append(out,
			set(func(o outcome) string { return o.version })+" | "+set(func(o outcome) string { return o.protocol })+" | "+s)
	}
	return out
}
