package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// TestGroupOverJSON creates, reads, changes and deletes a group with JSON requests, as a
// user of curl would.
func TestGroupOverJSON(t *testing.T) {
	w := newWorld(t)
	org := string(w.org)
	made := w.do(t, "POST /iam/v2beta1/groups/"+org, `{"name":"dev","description":"first"}`)
	if made.status != 200 || made.field("name") != "dev" || made.field("verified") != false ||
		made.field("status") != "ORG_STATUS_READY" {
		t.Fatalf("create: %d %s", made.status, made.text)
	}
	if limits, ok := made.field("resourceLimits").(map[string]any); !ok || len(limits) != 0 {
		t.Errorf("resourceLimits = %v, want an empty object", made.field("resourceLimits"))
	}
	if at, _ := made.field("createTime").(string); len(at) != len("2006-01-02T15:04:05.000Z") {
		t.Errorf("createTime = %q", at)
	}
	uid := made.field("uid").(string)
	escaped := strings.ReplaceAll(uid, "/", "%2F")
	for _, path := range []string{uid, escaped, uid + "/"} {
		if got := w.do(t, "GET /iam/v2/groups/"+path, ""); got.text != made.text {
			t.Errorf("get %s: %s, want %s", path, got.text, made.text)
		}
	}
	steps := []struct{ request, body, name, description string }{
		{"PATCH /iam/v2beta1/groups/" + uid, `{"description":"second"}`, "dev", "second"},
		{
			"PATCH /iam/v2beta1/groups/" + uid + "?updateMask=description", `{"description":"third","name":"ignored"}`, "dev",
			"third",
		},
		{"PATCH /iam/v2beta1/groups/" + uid + "?update_mask=name", `{"description":"ignored","name":"ops"}`, "ops", "third"},
		{"PATCH /iam/v2beta1/groups/" + uid + "?updateMask=", `{"name":"dev"}`, "dev", "third"},
		{"PATCH /iam/v2beta1/groups/" + uid, "", "dev", "third"},
		{"PATCH /iam/v2beta1/groups/" + uid, "{}", "dev", "third"},
		// The body is the unchanged answer to the creation.
		{"PATCH /iam/v2beta1/groups/" + escaped, made.text, "dev", "first"},
		{"PATCH /iam/v2beta1/groups/" + uid, `{"description":""}`, "dev", ""},
		{
			"PATCH /iam/v2beta1/groups/" + uid + "?updateMask=*", `{"name":"qa","description":"x","kind":"ORG_KIND_DEV"}`,
			"qa", "x",
		},
		{"PATCH /iam/v2beta1/groups/" + uid + "?updateMask=*", `{"name":"qa","kind":"ORG_KIND_DEV"}`, "qa", ""},
	}
	for _, s := range steps {
		got := w.do(t, s.request, s.body)
		if got.field("name") != s.name || got.field("description") != s.description || got.field("uid") != uid {
			t.Errorf("%s %s: %s", s.request, s.body, got.text)
		}
	}
	list := w.do(t, "GET /iam/v2beta1/groups?uidp.descendantsOf="+org+"&page_size=1&skip=0", "")
	if list.field("totalCount") != "1" || list.field("skipped") != json.Number("0") || list.field("nextPageToken") != "" {
		t.Errorf("list: %s", list.text)
	}
	gone := w.do(t, "DELETE /iam/v2beta1/groups/"+uid, "")
	if gone.status != 200 || gone.text != "" || gone.header.Get("Content-Type") != "" {
		t.Errorf("delete: %d %q %v", gone.status, gone.text, gone.header)
	}
	if got := w.do(t, "GET /iam/v2beta1/groups/"+uid, ""); got.status != 404 || got.field("code") != json.Number("5") {
		t.Errorf("after its end: %d %s", got.status, got.text)
	}
}

func TestBadRequests(t *testing.T) {
	w := newWorld(t)
	org := string(w.org)
	tests := map[string]struct {
		request, body string
		header        []string
		status        int
		code          string
		fields        string // names of the invalid fields in the error, separated by spaces
	}{
		"an empty body is an empty resource": {"POST /iam/v2beta1/groups/" + org, "", nil, 400, "3", "name"},
		"so is one of spaces":                {"POST /iam/v2beta1/groups/" + org, " \n", nil, 400, "3", "name"},
		"an unknown key": {
			"POST /iam/v2beta1/groups/" + org, `{"name":"a","nme":"b"}`, nil, 400, "3", "nme",
		},
		"an unknown key, of an update": {
			"PATCH /iam/v2beta1/groups/" + org + "?updateMask=name", `{"nme":"b"}`, nil, 400, "3", "nme",
		},
		"a key given twice": {
			"POST /iam/v2beta1/groups/" + org, `{"name":"a","name":"b"}`, nil, 400, "3", "name",
		},
		"a number for text": {"POST /iam/v2beta1/groups/" + org, `{"name":1}`, nil, 400, "3", "name"},
		"an enum there is none of": {
			"POST /iam/v2beta1/groups/" + org, `{"name":"a","kind":"X"}`, nil, 400, "3", "kind",
		},
		"not JSON": {"POST /iam/v2beta1/groups/" + org, `{"name":`, nil, 400, "3", "body"},
		"two documents": {
			"POST /iam/v2beta1/groups/" + org, `{"name":"a"}{}`, nil, 400, "3", "body",
		},
		"a list": {"POST /iam/v2beta1/groups/" + org, `[]`, nil, 400, "3", "body"},
		"null":   {"POST /iam/v2beta1/groups/" + org, `null`, nil, 400, "3", "body"},
		"text that is not UTF-8": {
			"POST /iam/v2beta1/groups/" + org, "{\"name\":\"\xff\"}", nil, 400, "3", "name",
		},
		"a body that is too large": {
			"POST /iam/v2beta1/groups/" + org, `{"name":"` + strings.Repeat("a", maxBody) + `"}`, nil, 400, "3", "body",
		},
		"a body that is a form": {
			"POST /iam/v2beta1/groups/" + org, `name=a`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 400,
			"3", "body",
		},
		"JSON that is said to be a form": {
			"PATCH /iam/v2beta1/groups/" + org, `{"description":"d"}`,
			[]string{"Content-Type", "application/x-www-form-urlencoded"}, 200, "", "",
		},
		"JSON of no known type": {
			"PATCH /iam/v2beta1/groups/" + org, `{"description":"d"}`, []string{"Content-Type", "/;"}, 200, "", "",
		},
		"a page size that is no number": {"GET /iam/v2beta1/groups?page_size=abc", "", nil, 400, "3", "page_size"},
		"two bad values, in camel case": {
			"GET /iam/v2beta1/groups?pageSize=abc&uidp.inRoot=2", "", nil, 400, "3", "page_size uidp.in_root",
		},
		"a negative page size": {"GET /iam/v2beta1/groups?page_size=-1", "", nil, 400, "3", "page_size"},
		"a value given twice":  {"GET /iam/v2beta1/groups?skip=1&skip=2", "", nil, 400, "3", "skip"},
		"a value given in both cases": {
			"GET /iam/v2beta1/groups?page_size=1&pageSize=2", "", nil, 400, "3", "page_size",
		},
		"a query value that is not UTF-8": {"GET /iam/v2beta1/groups?name=%ff", "", nil, 400, "3", "name"},
		"a query that is malformed":       {"GET /iam/v2beta1/groups?name=%zz", "", nil, 400, "3", "query"},
		"a type of relationship there is not": {
			"GET /iam/v2beta1/identities?relationship_type=X", "", nil, 400, "3", "relationship_type",
		},
		"a page token of somebody else": {"GET /iam/v2beta1/groups?page_token=abc", "", nil, 400, "3", "page_token"},
		"an order there is not":         {"GET /iam/v2beta1/groups?order_by=x", "", nil, 400, "3", "order_by"},
		"a filter that is no uid": {
			"GET /iam/v2beta1/groups?uidp.children_of=x", "", nil, 400, "3", "uidp.children_of",
		},
		"a path that is no uid":    {"GET /iam/v2beta1/groups/x", "", nil, 400, "3", "uid"},
		"a path that is not UTF-8": {"GET /iam/v2beta1/groups/%ff", "", nil, 400, "3", "uid"},
		"a mask that leads nowhere": {
			"PATCH /iam/v2beta1/groups/" + org + "?updateMask=x,y.z", `{}`, nil, 400, "3", "update_mask update_mask",
		},
		"a role without capabilities": {
			"POST /iam/v2beta1/roles/" + org, `{"name":"a"}`, nil, 400, "3", "capabilities",
		},
		"a role with an unknown capability": {
			"POST /iam/v2beta1/roles/" + org, `{"name":"a","capabilities":["UNKNOWN"]}`, nil, 400, "3", "capabilities",
		},
		"a binding of nothing": {
			"POST /iam/v2beta1/roleBindings/" + org, `{}`, nil, 400, "3", "identity_uid role_uid",
		},
		"a lookup of nobody": {
			"GET /iam/v2beta1/identities:lookupIdentity", "", nil, 400, "3", "issuer subject",
		},
		"an empty batch": {
			"POST /iam/v2beta1/roleBindings:batchCreate", `{"parent":"` + org + `"}`, nil, 400, "3", "requests",
		},
		"an identity without a relationship": {
			"POST /iam/v2beta1/identities/" + org, `{"name":"a"}`, nil, 400, "3", "relationship",
		},
		"an identity in no group": {"POST /iam/v2beta1/identities", `{"name":"a"}`, nil, 400, "3", "parent"},
		"metadata without any": {
			"PATCH /iam/v2beta1/identities:updateIdentityMetadata", `{}`, nil, 400, "3", "identity_metadata",
		},
		"an unknown path":                      {"GET /iam/v2beta1/nothing", "", nil, 404, "5", ""},
		"the root":                             {"GET /", "", nil, 404, "5", ""},
		"a method that the path does not take": {"PUT /iam/v2beta1/groups/" + org, "{}", nil, 405, "12", ""},
		"a mask into the service's fields": {
			"PATCH /iam/v2beta1/groups/" + org + "?updateMask=uid.x", `{}`, nil, 400, "3", "update_mask",
		},
		"limits, which would be lost": {
			"POST /iam/v1/groups/" + org, `{"name":"a","resourceLimits":{"clusters":5}}`, nil, 400, "3", "resource_limits",
		},
		"no limits": {
			"POST /iam/v1/groups/" + org, `{"name":"no limits","resourceLimits":{}}`, nil, 200, "", "",
		},
		"an override of the method": {
			"POST /iam/v2beta1/groups/" + org, "",
			[]string{"X-HTTP-Method-Override", "DELETE", "Content-Type", "application/x-www-form-urlencoded"}, 400, "3",
			"name",
		},
		"no token": {
			"GET /iam/v2beta1/groups", "", []string{"Authorization", ""}, 401, "16", "",
		},
		"a token without its scheme": {
			"GET /iam/v2beta1/groups", "", []string{"Authorization", w.token}, 401, "16", "",
		},
		"no token and a bad body: the token": {
			"POST /iam/v2beta1/groups", "{", []string{"Authorization", ""}, 401, "16", "",
		},
		"a group of another organization": {
			"GET /iam/v2beta1/groups/" + string(resource.NewRoot()), "", nil, 403, "7", "",
		},
		"something that is not there": {
			"GET /iam/v2beta1/groups/" + string(w.org.NewChild()), "", nil, 404, "5", "",
		},
		"a mask that tries the service's fields": {
			"PATCH /iam/v2beta1/groups/" + org + "?updateMask=uid,createTime", `{"uid":"x"}`, nil, 200, "", "",
		},
		"unknown query keys are ignored": {"GET /iam/v2beta1/groups?nonsense=1&a.b=c", "", nil, 200, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := w.do(t, tt.request, tt.body, tt.header...)
			code, _ := got.field("code").(json.Number)
			if got.status != tt.status || code.String() != tt.code {
				t.Fatalf("%d, code %s, want %d, %s: %s", got.status, code, tt.status, tt.code, got.text)
			}
			if fields := strings.Join(got.violations(), " "); fields != tt.fields {
				t.Errorf("fields %q, want %q: %s", fields, tt.fields, got.text)
			}
			if got.status >= 400 {
				checkShape(t, got)
			}
			for _, k := range []string{"X-Request-Id", "X-Content-Type-Options", "Cache-Control"} {
				if len(got.header.Values(k)) != 1 {
					t.Errorf("%s: %q", k, got.header.Values(k))
				}
			}
			challenge := ""
			switch {
			case got.status != http.StatusUnauthorized:
			case slices.Equal(tt.header, []string{"Authorization", ""}):
				challenge = `Bearer realm="` + audience + `"`
			default:
				challenge = `Bearer realm="` + audience + `", error="invalid_token"`
			}
			if had := got.header.Get("WWW-Authenticate"); had != challenge {
				t.Errorf("WWW-Authenticate: %q, want %q", had, challenge)
			}
		})
	}
}

// checkShape checks that an error has the form {code, message, details} and that its
// first detail is an ErrorInfo.
func checkShape(t *testing.T, a answer) {
	t.Helper()
	keys := []string{}
	for k := range a.json {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"code", "details", "message"}) {
		t.Fatalf("an error with %v: %s", keys, a.text)
	}
	details := a.json["details"].([]any)
	info, _ := details[0].(map[string]any)
	if info["@type"] != "type.googleapis.com/google.rpc.ErrorInfo" || info["reason"] == "" || info["domain"] != domain {
		t.Errorf("first detail %v", info)
	}
}

func TestExpiredPageTokens(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.do(t, "POST /iam/v2beta1/groups/"+string(w.org), `{"name":"`+name+`"}`)
	}
	first := w.do(t, "GET /iam/v2beta1/groups?page_size=1&order_by=name", "")
	next, _ := first.field("nextPageToken").(string)
	second := w.do(t, "GET /iam/v2beta1/groups?page_size=1&order_by=name&page_token="+next, "")
	if next == "" || second.text == first.text || second.header.Get("Holdfast-Page-Token") != "" {
		t.Fatalf("second page: %s, header %q", second.text, second.header.Get("Holdfast-Page-Token"))
	}
	w.now = w.now.Add(4 * 24 * time.Hour)
	w.token = w.mint(token.Claims{Subject: w.owner.UID, Audience: []string{audience}, Life: time.Hour})
	again := w.do(t, "GET /iam/v2beta1/groups?page_size=1&order_by=name&page_token="+next, "")
	if again.status != 200 || again.header.Get("Holdfast-Page-Token") != "expired" {
		t.Fatalf("%d, header %q: %s", again.status, again.header.Get("Holdfast-Page-Token"), again.text)
	}
}

func TestOpenPaths(t *testing.T) {
	w := newWorld(t)
	for request, want := range map[string]string{
		"GET /ping/v2beta1/ping": `{"response":"pong"}`,
		"GET /ping/v2/ping/":     `{"response":"pong"}`,
		"GET /openapi.json":      "",
		"HEAD /openapi.json":     "",
	} {
		got := w.do(t, request, "", "Authorization", "")
		if got.status != 200 || got.header.Get("Content-Type") != "application/json" || want != "" && got.text != want {
			t.Errorf("%s: %d %.100s", request, got.status, got.text)
		}
	}
}

func TestRequestIDIsReturned(t *testing.T) {
	w := newWorld(t)
	got := w.do(t, "GET /iam/v2beta1/groups", "", "X-Request-Id", "mine-1")
	if id := got.header.Values("X-Request-Id"); len(id) != 1 || id[0] != "mine-1" {
		t.Errorf("X-Request-Id: %q", id)
	}
}
