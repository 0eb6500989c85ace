package scim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
)

// ids returns the ids of the resources in a list, and its total.
func (r reply) ids() (ids []string, total float64) {
	resources, _ := r.body["Resources"].([]any)
	for _, o := range resources {
		id, _ := o.(map[string]any)["id"].(string)
		ids = append(ids, id)
	}
	total, _ = r.body["totalResults"].(float64)
	return ids, total
}

// TestEntra replays the requests of Entra ID for a user.
func TestEntra(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		got := w.want(200, `GET /Users?filter=userName+eq+"6d1b5a3c-0000-4c5e-8f5e-6d1b5a3c0000"`, "")
		if _, total := got.ids(); total != 0 {
			t.Errorf("%s", got.text)
		}
		made := w.want(201, "POST /Users", `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User",
			"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"],"externalId":"58342554","userName":"ben@x.test",
			"active":true,"displayName":"Ben Example","emails":[{"primary":true,"type":"work","value":"ben@x.test"}],
			"name":{"formatted":"Ben Example","familyName":"Example","givenName":"Ben"},
			"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User":{"employeeNumber":"7","department":"R&D",
			"manager":{"value":"unknown"}}}`)
		id, _ := made.body["id"].(string)
		if at := made.header.Get("Location"); at != w.Endpoint(w.provider.UID)+"/Users/"+id || made.header.Get("ETag") == "" {
			t.Errorf("headers %v", made.header)
		}
		for _, f := range []string{`userName+eq+"BEN@x.test"`, `externalId+eq+"58342554"`} {
			if ids, total := w.want(200, "GET /Users?filter="+f, "").ids(); total != 1 || ids[0] != id {
				t.Errorf("%s: %v %v", f, ids, total)
			}
		}
		got = w.want(200, "PATCH /Users/"+id, `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[
			{"op":"Replace","path":"emails[type eq \"work\"].value","value":"new@x.test"},
			{"op":"Replace","path":"name.familyName","value":"New"},{"op":"Add","path":"title","value":"Engineer"},
			{"op":"Add","path":"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department","value":"Sales"},
			{"op":"Replace","path":"userName","value":"new@x.test"}]}`)
		for _, part := range []string{`"familyName":"New"`, `"department":"Sales"`, `"value":"new@x.test"`,
			`"userName":"new@x.test"`, `"title":"Engineer"`, `"employeeNumber":"7"`, document.EnterpriseSchema} {
			if !strings.Contains(got.text, part) {
				t.Errorf("%s is not in %s", part, got.text)
			}
		}
		w.want(200, "PATCH /Users/"+id, `{"Operations":[{"op":"Replace","path":"active","value":"False"}]}`)
		if got := w.want(200, "GET /Users/"+id, ""); got.body["active"] != false {
			t.Errorf("%s", got.text)
		}
		w.want(204, "DELETE /Users/"+id, "")
		if got := w.want(404, "GET /Users/"+id, ""); got.body["status"] != "404" {
			t.Errorf("%s", got.text)
		}
		w.want(201, "POST /Users", `{"externalId":"58342554","userName":"new@x.test","active":true}`)
	})
}

// TestOkta replays the requests of Okta for a user.
func TestOkta(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		w.want(200, "GET /ServiceProviderConfig", "")
		if got := w.want(200, "GET /Users?startIndex=1&count=2", ""); got.body["startIndex"] != 1.0 {
			t.Errorf("%s", got.text)
		}
		body := `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"ben@x.test","name":
			{"givenName":"Ben","familyName":"Example"},"emails":[{"primary":true,"value":"ben@x.test","type":"work"}],
			"displayName":"Ben Example","locale":"en-US","externalId":"00ujl29u0le5T6Aj10h7","groups":[],
			"password":"hush","active":%v}`
		made := w.want(201, "POST /Users", fmt.Sprintf(body, true))
		id, _ := made.body["id"].(string)
		if strings.Contains(made.text, "hush") {
			t.Errorf("%s", made.text)
		}
		w.want(200, "PUT /Users/"+id, fmt.Sprintf(body, true))
		w.want(200, "PATCH /Users/"+id, `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
			"Operations":[{"op":"replace","value":{"active":false}}]}`)
		if got := w.want(200, "PUT /Users/"+id, fmt.Sprintf(body, true)); got.body["active"] != true {
			t.Errorf("%s", got.text)
		}
	})
}

// TestOthers replays the requests of JumpCloud and Google for a user.
func TestOthers(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		photo := "data:image/png;base64," + strings.Repeat("A", 100<<10)
		for i, body := range []string{
			`{"userName":"jump","externalId":"5f1b","active":true,"entitlements":[{"value":"a"}],"roles":["x"],
				"photos":[{"type":"photo","value":"` + photo + `"}],"urn:example:params:x:2.0:User":{"shoe":44}}`,
			`{"userName":"google","externalId":117034,"active":true,"name":{"givenName":"G"},"addresses":[{"type":"work"}]}`,
		} {
			made := w.want(201, "POST /Users", body, "Content-Type", "application/json")
			id, _ := made.body["id"].(string)
			got := w.want(200, "PUT /Users/"+id, body, "Content-Type", "application/json")
			if got.text != made.text || strings.Contains(got.text, photo) || i == 0 && !strings.Contains(got.text, "shoe") {
				t.Errorf("%s\n%s", made.text, got.text)
			}
			got = w.want(200, "PATCH /Users/"+id, `{"Operations":[{"op":"replace","path":"active","value":false}]}`)
			if got.body["active"] != false {
				t.Errorf("%s", got.text)
			}
		}
		if ids, _ := w.want(200, `GET /Users?filter=externalId+eq+"117034"`, "").ids(); len(ids) != 1 {
			t.Errorf("%v", ids)
		}
	})
}

// TestLists checks pages, totals, filters, orders and projections.
func TestLists(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		var all []string
		for i := range 7 {
			all = append(all, w.add(fmt.Sprintf("user%d", 6-i)))
			w.now = w.now.Add(time.Millisecond)
		}
		w.want(200, "PATCH /Users/"+all[0], `{"Operations":[{"op":"add","value":{"title":"Chief","active":false}}]}`)
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		tests := map[string]struct {
			query string
			want  []string
			total float64
		}{
			"everything":              {"", all, 7},
			"a page":                  {"startIndex=3&count=2", all[2:4], 7},
			"the last page":           {"startIndex=7&count=5", all[6:], 7},
			"after the last page":     {"startIndex=8&count=5", nil, 7},
			"only the total":          {"count=0", nil, 7},
			"a start of 0":            {"startIndex=0&count=1", all[:1], 7},
			"by name":                 {`filter=username+eq+"USER5"`, all[1:2], 1},
			"by name and more":        {`filter=userName+eq+"user5"+and+title+pr`, nil, 0},
			"by id":                   {`filter=id+eq+"` + all[3] + `"`, all[3:4], 1},
			"by title":                {`filter=title+sw+"chi"`, all[:1], 1},
			"by state":                {`filter=active+eq+true&count=2&startIndex=2`, all[2:4], 6},
			"not":                     {`filter=not+(userName+co+"user")`, nil, 0},
			"a part of a filter":      {`filter=userName+eq+"user5"+or+title+pr`, all[:2], 2},
			"sorted":                  {"sortBy=userName", reversed, 7},
			"sorted, descending":      {"sortBy=userName&sortOrder=descending&count=2", all[:2], 7},
			"sorted by a time":        {"sortBy=meta.created&sortOrder=descending&count=1", all[6:], 7},
			"a name with a NUL":       {`filter=userName+eq+"a%5Cu0000"`, nil, 0},
			"an unknown attribute":    {`filter=shoe+eq+44`, nil, 0},
			"by externalId, no index": {`filter=externalId+sw+"x-user1"`, all[5:6], 1},
		}
		for name, tt := range tests {
			got := w.want(200, "GET /Users?"+tt.query, "")
			if ids, total := got.ids(); !slices.Equal(ids, tt.want) || total != tt.total ||
				got.body["itemsPerPage"] != float64(len(ids)) {
				t.Errorf("%s: %v of %v, want %v of %v", name, ids, total, tt.want, tt.total)
			}
		}
		for _, path := range []string{"/Users/.search", "/.search"} {
			got := w.want(200, "POST "+path, `{"schemas":["urn:ietf:params:scim:api:messages:2.0:SearchRequest"],
				"filter":"userName eq \"user5\"","attributes":["userName"],"startIndex":1,"count":10}`)
			if text, _ := json.Marshal(got.body["Resources"]); string(text) != `[{"id":"`+all[1]+
				`","schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"user5"}]` {
				t.Errorf("%s: %s", path, text)
			}
		}
		got := w.want(200, "GET /Users/"+all[0]+"?excludedAttributes=emails,title,meta,externalId,active", "")
		if len(got.body) != 3 {
			t.Errorf("%s", got.text)
		}
		if n := drifts(t, w); n != "" {
			t.Error(n)
		}
	})
}

// TestETags checks conditional requests.
func TestETags(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		id := w.add("ben")
		tag := w.want(200, "GET /Users/"+id, "").header.Get("ETag")
		if got := w.send("GET /Users/"+id, "", "If-None-Match", tag); got.status != 304 || got.text != "" {
			t.Errorf("%d %s", got.status, got.text)
		}
		body := `{"Operations":[{"op":"add","path":"title","value":%q}]}`
		w.want(412, "PATCH /Users/"+id, fmt.Sprintf(body, "a"), "If-Match", `W/"9"`)
		next := w.want(200, "PATCH /Users/"+id, fmt.Sprintf(body, "a"), "If-Match", tag).header.Get("ETag")
		w.want(412, "DELETE /Users/"+id, "", "If-Match", tag)
		w.want(412, "PUT /Users/"+id, `{"userName":"ben"}`, "If-Match", tag)
		w.want(200, "GET /Users/"+id, "", "If-None-Match", tag)
		w.want(204, "DELETE /Users/"+id, "", "If-Match", `"x", `+next)
	})
}

// TestDescriptions checks what the service says about itself, and that it refuses what it does not support.
func TestDescriptions(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		config := w.want(200, "GET /ServiceProviderConfig", "")
		for _, part := range []string{`"patch":{"supported":true}`, `"etag":{"supported":true}`, `"supported":false`} {
			if !strings.Contains(config.text, part) {
				t.Errorf("%s is not in %s", part, config.text)
			}
		}
		for target, want := range map[string]int{
			"GET /ResourceTypes": 200, "GET /ResourceTypes/User": 200, "GET /ResourceTypes/Group": 200, "GET /Schemas": 200,
			"GET /Schemas/" + document.UserSchema: 200, "GET /Schemas/" + document.EnterpriseSchema: 200,
			"GET /Schemas/x": 404, "GET /Me": 501, "POST /Bulk": 501, "GET /Groups": 200, "POST /Groups": 400,
			"PATCH /Groups/x": 404, "GET /nothing": 404, "DELETE /Users": 405, "POST /Users/x": 405, "POST /Schemas": 405,
			"GET /Users/x": 404, "PATCH /Users/x": 400, "DELETE /Users/x": 404, "GET /Users/": 200, "GET /": 404,
			"GET /Schemas?filter=x+pr": 403,
		} {
			got := w.send(target, "")
			if got.status != want || got.header.Get("Content-Type") != "application/scim+json; charset=utf-8" {
				t.Errorf("%s: %d %s, want %d", target, got.status, got.text, want)
			}
			schemas, _ := json.Marshal(got.body["schemas"])
			if want >= 400 && string(schemas) != `["`+document.ErrorSchema+`"]` {
				t.Errorf("%s: %s", target, got.text)
			}
		}
	})
}

// TestBadRequests checks that bad and hostile requests get an explicit answer.
func TestBadRequests(t *testing.T) {
	many := `{"userName":"x","emails":[` + strings.TrimSuffix(strings.Repeat(`{"value":"a"},`, 100_000), ",") + `]}`
	some := `{"userName":"x","emails":[` + strings.TrimSuffix(strings.Repeat(`{"value":"a"},`, 10_000), ",") + `]}`
	eachWorld(t, func(t *testing.T, w *world) {
		id := w.add("ben")
		tests := map[string]struct {
			target, body string
			status       int
			scimType     any
		}{
			"no userName":        {"POST /Users", `{"externalId":"x"}`, 400, "invalidValue"},
			"an empty userName":  {"POST /Users", `{"userName":" "}`, 400, "invalidValue"},
			"a NUL":              {"POST /Users", `{"userName":"a\u0000"}`, 400, "invalidValue"},
			"a long userName":    {"POST /Users", `{"userName":"` + strings.Repeat("a", 257) + `"}`, 400, "invalidValue"},
			"a wrong externalId": {"POST /Users", `{"userName":"x","externalId":{}}`, 400, "invalidValue"},
			"a wrong state":      {"POST /Users", `{"userName":"x","active":[]}`, 400, "invalidValue"},
			"no JSON":            {"POST /Users", `{`, 400, "invalidSyntax"},
			"deep JSON":          {"POST /Users", strings.Repeat(`{"a":`, 5000), 400, "invalidSyntax"},
			"100,000 addresses":  {"POST /Users", many, 413, nil},
			"10,000 addresses":   {"POST /Users", some, 413, nil},
			"an attribute of 70 KB": {
				"POST /Users", `{"userName":"x","title":"` + strings.Repeat("a", 70_000) + `"}`, 413, nil,
			},
			"a bad filter":   {"GET /Users?filter=userName", "", 400, "invalidFilter"},
			"a deep filter":  {"GET /Users?filter=" + strings.Repeat("(", 1000), "", 400, "invalidFilter"},
			"a long filter":  {"GET /Users?filter=" + strings.Repeat("a", filter.MaxLength+1), "", 400, "invalidFilter"},
			"a wrong number": {"GET /Users?count=many", "", 400, "invalidValue"},
			"a bad order":    {"GET /Users?sortBy=[", "", 400, "invalidPath"},
			"no operations":  {"PATCH /Users/" + id, `{}`, 400, "invalidSyntax"},
			"a bad path": {
				"PATCH /Users/" + id, `{"Operations":[{"op":"add","path":"a[","value":1}]}`, 400, "invalidPath",
			},
			"a new id":         {"PATCH /Users/" + id, `{"Operations":[{"op":"add","path":"id","value":1}]}`, 400, "mutability"},
			"another provider": {"GET /Users/" + strings.Repeat("a", 26), "", 404, nil},
		}
		for name, tt := range tests {
			got := w.send(tt.target, tt.body)
			if got.status != tt.status || got.body["scimType"] != tt.scimType || got.body["status"] != fmt.Sprint(tt.status) {
				t.Errorf("%s: %d %.300s, want %d %v", name, got.status, got.text, tt.status, tt.scimType)
			}
		}
		if got := w.send("POST /Users", `{}`, "Content-Type", "text/plain"); got.status != http.StatusUnsupportedMediaType {
			t.Errorf("%d %s", got.status, got.text)
		}
		other, owner := w.found("other")
		p, token := w.directory(other.UID, owner)
		for _, method := range []string{"GET", "DELETE"} { // the user of another directory
			if got := w.sendTo(w.Endpoint(p.UID), token, method+" /Users/"+id, ""); got.status != 404 {
				t.Errorf("%s: %d %s", method, got.status, got.text)
			}
		}
		if ids, total := w.sendTo(w.Endpoint(p.UID), token, "GET /Users", "").ids(); total != 0 || ids != nil {
			t.Errorf("%v %v", ids, total)
		}
	})
}
