package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A document contains the parts of an OpenAPI description that the test reads.
type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Responses map[string]response `json:"responses"`
	} `json:"components"`
}

type operation struct {
	ID         string              `json:"operationId"`
	Security   *[]any              `json:"security"`
	Parameters []parameter         `json:"parameters"`
	Body       *struct{}           `json:"requestBody"`
	Responses  map[string]response `json:"responses"`
}

type parameter struct {
	Name string `json:"name"`
	In   string `json:"in"`
}

type response struct {
	Ref     string              `json:"$ref"`
	Content map[string]struct{} `json:"content"`
}

// An example is a request for an operation. It has the UID in the path, if there is one, and the body. If all is set,
// the request has every documented query parameter.
type example struct {
	uid, query, body string
	digest           string // digest in the path, if there is one
	all              bool
	fails            bool
	as               string // token of the caller; if empty, the owner's token is used
}

// TestApiOpenAPI calls every operation in the server's OpenAPI description and validates each
// answer against its schema.
func TestApiOpenAPI(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{InspectWorkers: 1}, seedAda(t))
	x := w.makeThings(t)
	text := w.send(t, "", "GET", "/openapi.json", "").body
	var doc document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	check := schemas(t, text)
	examples := doc.examples(t, w, x)
	for _, id := range inOrder(examples) {
		t.Run(id, func(t *testing.T) {
			path, verb, op, ok := doc.find(id)
			if !ok {
				t.Fatal("the operation is not documented")
			}
			fails := false
			for _, e := range examples[id] {
				w.try(t, doc, e, path, verb, op, check, x)
				fails = fails || e.fails
			}
			if open := op.Security != nil && len(*op.Security) == 0; !fails && !open {
				t.Error("no example fails")
			}
		})
	}
}

// examples returns examples of every operation, by ID. The test fails if an operation has none.
func (d document) examples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	examples := openAPIExamples(t, w, x)
	maps.Copy(examples, federationExamples(t, w, x))
	maps.Copy(examples, registryExamples(t, w, x))
	maps.Copy(examples, exchangeExamples(w, x))
	maps.Copy(examples, v1Examples(t, w, x))
	maps.Copy(examples, registryV1Examples(t, w, x))
	maps.Copy(examples, attachedV1Examples(t, w, x))
	maps.Copy(examples, advisoryV1Examples(t, w, x))
	maps.Copy(examples, advisoryExamples(t, w, x))
	maps.Copy(examples, signInExamples(t, w, x))
	maps.Copy(examples, eventExamples(t, w, x))
	maps.Copy(examples, organizationExamples(t, w, x))
	maps.Copy(examples, findingExamples(t, w, x))
	maps.Copy(examples, judgementExamples(t, w, x))
	maps.Copy(examples, signerExamples(t, w, x))
	maps.Copy(examples, requestExamples(t, w, x))
	maps.Copy(examples, exploitedExamples(t, w, x))
	for path, operations := range d.Paths {
		for verb, op := range operations {
			if len(examples[op.ID]) == 0 {
				t.Errorf("%s (%s %s) is documented, but has no example", op.ID, verb, path)
			}
		}
	}
	return examples
}

// inOrder returns the IDs of operations. Operations that delete resources come last.
func inOrder(examples map[string][]example) []string {
	return slices.SortedFunc(maps.Keys(examples), func(a, b string) int {
		if last := strings.Contains(a, "_Delete"); last != strings.Contains(b, "_Delete") {
			return map[bool]int{true: 1, false: -1}[last]
		}
		return strings.Compare(a, b)
	})
}

func (d document) find(id string) (path, verb string, op operation, ok bool) {
	for path, operations := range d.Paths {
		for verb, op := range operations {
			if op.ID == id {
				return path, verb, op, true
			}
		}
	}
	return "", "", operation{}, false
}

// target returns the path and the query of an example.
func (e example) target(t *testing.T, path string, op operation, x things) string {
	t.Helper()
	target := strings.NewReplacer("{uid}", e.uid, "{package}", e.uid, "{digest}",
		e.digest, "{reference}", e.digest, "{format}", e.digest).Replace(path)
	query := e.query
	if e.all {
		query = everyParameter(t, op, x)
	}
	if query != "" {
		target += "?" + query
	}
	return target
}

// try sends an example and checks the answer.
func (w *world) try(
	t *testing.T, doc document, e example, path, verb string, op operation,
	check func(t *testing.T, pointer []string, body string), x things,
) {
	t.Helper()
	target := e.target(t, path, op, x)
	if (op.Body != nil) != (e.body != "") {
		t.Errorf("body %q for an operation with a documented body: %t", e.body, op.Body != nil)
	}
	bearer := w.Token
	if e.as != "" {
		bearer = e.as
	}
	r := reply{}
	if strings.HasSuffix(path, ":watch") && !e.fails {
		r = w.firstEvent(t, bearer, target)
	} else {
		r = w.send(t, bearer, strings.ToUpper(verb), target, e.body)
	}
	if (r.status != http.StatusOK) != e.fails {
		t.Fatalf("%s %s: HTTP status %d\n%s", verb, target, r.status, r.body)
	}
	key := fmt.Sprint(r.status)
	if _, ok := op.Responses[key]; !ok {
		key = "default"
	}
	documented, ok := op.Responses[key]
	pointer := []string{"paths", path, verb, "responses", key}
	if name, shared := strings.CutPrefix(documented.Ref, "#/components/responses/"); shared {
		documented, pointer = doc.Components.Responses[name], []string{"components", "responses", name}
	}
	media := r.header.Get("Content-Type")
	switch _, known := documented.Content[media]; {
	case !ok, key == "default" && r.status < 400:
		t.Errorf("%s %s: HTTP status %d is not documented", verb, target, r.status)
	case len(documented.Content) == 0:
		if r.body != "" {
			t.Errorf("%s %s: body %q, but no body is documented", verb, target, r.body)
		}
	case !known:
		t.Errorf("%s %s: content type %q is not documented", verb, target, media)
	default:
		check(t, append(pointer, "content", media, "schema"), r.body)
	}
}

// everyParameter returns a query with every documented parameter.
func everyParameter(t *testing.T, op operation, x things) string {
	t.Helper()
	values := map[string]string{
		"uidp.ancestors_of":      x.binding,
		"uidp.descendants_of":    x.org,
		"uidp.children_of":       x.folder,
		"uidp.in_root":           "false",
		"uidp.ids":               x.folder,
		"name":                   "folder",
		"page_size":              "2",
		"page_token":             "",
		"order_by":               "uid desc",
		"skip":                   "0",
		"relationship_type":      "RELATIONSHIP_TYPE_CLAIM_MATCH",
		"identity":               x.identity,
		"group":                  x.folder,
		"role":                   x.role,
		"advisory_ids":           "A-1",
		"legacy_advisory_ids":    "x",
		"artifact_names":         "x",
		"artifact_types":         "x",
		"artifact_architectures": "x",
		"component_names":        "x",
		"component_types":        "x",
		"component_locations":    "x",
		"aliases":                "x",
		"origin":                 "x",
		"event_review_states":    "REVIEW_STATE_PENDING",
		"event_authors":          "x",
		"exclude_event_authors":  "y",
		"event_reviewers":        "x",
		"event_types":            "EVENT_TYPE_FILTER_FIXED",
		"latest_event_type":      "EVENT_TYPE_FILTER_FIXED",
		"query":                  "x",
		"issuer":                 "https://x.example",
		"subject":                "x",
		"key_id":                 "x",
		"identity_provider_uid":  x.folder,
		"identity_provider":      x.provider,
		"updateMask":             "description",
		"validate_only":          "true",
		"updated_since":          "2026-01-02T03:04:05Z",
		"include_referrers":      "true",
		"include_dates":          "true",
		"include_epochs":         "true",
		"digest":                 "sha256:" + strings.Repeat("0", 64),
		"identity_uid":           x.identity,
		"email":                  "a@b.test",
		"group_uid":              x.folder,
		"type":                   "iam.group",
		"since":                  "2026-01-02T03:04:05Z",
		"until":                  "2036-01-02T03:04:05Z",
	}
	query := url.Values{}
	for _, p := range op.Parameters {
		if p.In != "query" {
			continue
		}
		value, ok := values[p.Name]
		if !ok {
			t.Errorf("parameter %s is documented, but this test has no value for it", p.Name)
		}
		query.Set(p.Name, value)
	}
	return query.Encode()
}

// schemas returns a function that validates a body against a schema in the OpenAPI document. The schema is given as a
// JSON pointer.
func schemas(t *testing.T, text string) func(t *testing.T, pointer []string, body string) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("http://holdfast.test/openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	escaped := strings.NewReplacer("~", "~0", "/", "~1")
	return func(t *testing.T, pointer []string, body string) {
		t.Helper()
		address := "http://holdfast.test/openapi.json#"
		for _, p := range pointer {
			address += "/" + url.PathEscape(escaped.Replace(p))
		}
		schema, err := c.Compile(address)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%v\n%s", err, body)
		}
	}
}

func openAPIExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	nothing, viewer := x.org+"/0123456789abcdef", string(resource.ManagedRoleUID("viewer"))
	adas := w.mint(t, ada, token.Claims{Voucher: peopleProvider})
	list := []example{{}, {all: true}, {query: "page_size=-1", fails: true}, {query: "order_by=nothing", fails: true}}
	byUID := func(uid string) []example {
		return []example{
			{uid: uid}, {uid: strings.ReplaceAll(uid, "/", "%2F")}, {uid: nothing, fails: true}, {uid: "nonsense", fails: true},
		}
	}
	change := func(uid, body, bad string) []example {
		return []example{
			{uid: uid, body: body},
			{uid: uid, body: body, all: true},
			{uid: uid, body: bad, fails: true},
			{uid: nothing, body: body, fails: true},
			{uid: uid, query: "updateMask=nothing", body: body, fails: true},
		}
	}
	gone := func(uid string) []example { return []example{{uid: uid}, {uid: uid, fails: true}} }
	robot := func(kind string) string { return `{"name":"x","description":"d",` + kind + `}` }
	keys, _ := json.Marshal(publicKeys)
	return map[string][]example{
		"PingService_Ping":         {{}},
		"GroupsService_ListGroups": list,
		"GroupsService_GetGroup":   byUID(x.folder),
		"GroupsService_CreateGroup": {
			{uid: x.folder, body: `{"name":"new","description":"d"}`},
			{uid: x.folder, body: `{}`, fails: true},
			{uid: nothing, body: `{"name":"x"}`, fails: true},
			{uid: x.folder, body: `{"name":"new"}`, fails: true},
		},
		"GroupsService_UpdateGroup":      change(x.folder, `{"description":"new"}`, `{"name":"A"}`),
		"GroupsService_CheckEligibility": {{}, {as: "nonsense", fails: true}},
		"GroupsService_LookupGroup":      {{as: adas}, {fails: true}},
		"GroupsService_RequestGroupAccess": {
			{uid: string(resource.DerivedUID("people")), body: `{}`, as: adas},
			{uid: string(resource.DerivedUID("people")), body: `{}`, as: adas, fails: true},
		},
		"GroupsService_DeleteGroup": {
			{uid: w.child(t, x.folder, "gone")}, {uid: x.folder, fails: true}, {uid: nothing, fails: true},
		},
		"IdentitiesService_ListIdentities": list,
		"IdentitiesService_GetIdentity":    byUID(x.identity),
		"IdentitiesService_CreateIdentity": {
			{
				uid:  x.folder,
				body: robot(`"claimMatch":{"issuer":"https://x.example","subjectPattern":"a.*","audience":"z","claims":{"a":"b"}}`),
			},
			{
				uid:  x.folder,
				body: robot(`"staticKeys":{"issuer":"https://x.example","subject":"s","issuerKeys":` + string(keys) + `}`),
			},
			{
				uid: x.folder,
				body: robot(`"awsIdentity":{"awsAccount":"123456789012",` +
					`"arn":"arn:aws:iam::123456789012:user/x","userIdPattern":"A.*"}`),
			},
			{uid: x.folder, body: robot(`"servicePrincipal":"SERVICE_PRINCIPAL_INGESTER"`)},
			{uid: x.folder, body: `{"name":"x"}`, fails: true},
			{uid: x.folder, body: robot(`"claimMatch":{"issuer":"x"}`), fails: true},
		},
		"IdentitiesService_UpdateIdentity": change(x.identity, `{"description":"new"}`, `{"name":"A"}`),
		"IdentitiesService_LookupIdentity": {{all: true}, {query: "issuer=https://x.example", fails: true}},
		"IdentitiesService_UpdateIdentityMetadata": {
			{body: `{"identityMetadata":{"company":"x"}}`}, {body: `{}`, fails: true},
		},
		"IdentitiesService_DeleteIdentity": gone(x.identity),
		"RolesService_ListRoles":           list,
		"RolesService_GetRole":             byUID(x.role),
		"RolesService_CreateRole": {
			{uid: x.folder, body: `{"name":"x","capabilities":["CAP_IAM_GROUPS_LIST"]}`},
			{uid: x.folder, body: `{"name":"x"}`, fails: true},
		},
		"RolesService_UpdateRole": change(x.role, `{"description":"new"}`, `{"capabilities":[]}`),
		"RolesService_DeleteRole": {
			{uid: w.role(t, x.folder, "gone", someCapabilities...)}, {uid: nothing, fails: true},
		},
		"RoleBindingsService_ListRoleBindings": list,
		"RoleBindingsService_GetRoleBinding":   byUID(x.binding),
		"RoleBindingsService_CreateRoleBinding": {
			{uid: x.folder, body: `{"identityUid":"` + x.identity + `","roleUid":"` + viewer + `"}`},
			{uid: x.folder, body: `{}`, fails: true},
		},
		"RoleBindingsService_UpdateRoleBinding": {
			{uid: x.binding, body: `{"roleUid":"` + x.role + `"}`},
			{uid: x.binding, query: "updateMask=role_uid", body: `{"roleUid":"` + x.role + `"}`},
			{uid: x.binding, body: `{"roleUid":"x"}`, fails: true},
		},
		"RoleBindingsService_BatchCreateRoleBindings": {
			{
				body: `{"parent":"` + x.org + `","roleUid":"` + viewer + `",` +
					`"requests":[{"roleBinding":{"identityUid":"` + x.identity + `"}}]}`,
			},
			{body: `{"parent":"` + x.org + `"}`, fails: true},
		},
		"RoleBindingsService_DeleteRoleBinding": {{uid: x.binding}, {uid: x.binding}, {uid: "nonsense", fails: true}},
	}
}
