package scim_test

import (
	"strings"
	"testing"
)

// A step is a request of a directory, the status of its answer, and a part of its text. In all texts, $ben and $team
// are the ids of the first user and of the first group that the directory has created.
type step struct {
	target, body string
	status       int
	part         string
}

const (
	coreUser       = `"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"]`
	patchSchema    = `"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"]`
	enterpriseUser = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
)

// replays are the requests of directories, in the order and the spelling in which these send them.
var replays = map[string][]step{
	"Entra ID": {
		{`GET /Users?filter=userName eq "5b4c0c6e-9d5c-4a3f-9d6e-1f0a3a2b7c11"`, ``, 200, `"totalResults":0`},
		{`GET /Users?filter=userName eq "ben@example.com"`, ``, 200, `"totalResults":0`},
		{`POST /Users`, `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User","` + enterpriseUser + `"],
			"externalId":"0f1e-ben","userName":"ben@example.com","active":true,"displayName":"Ben Example",
			"emails":[{"primary":true,"type":"work","value":"ben@example.com"}],"meta":{"resourceType":"User"},
			"name":{"formatted":"Ben Example","familyName":"Example","givenName":"Ben"},
			"` + enterpriseUser + `":{"department":"IT","employeeNumber":"7"},"roles":[]}`, 201, `"department":"IT"`},
		{`POST /Users`, `{` + coreUser + `,"userName":"BEN@example.com"}`, 409, `"scimType":"uniqueness"`},
		{`GET /Users/$ben`, ``, 200, `"id":"$ben"`},
		{`PATCH /Users/$ben`, `{` + patchSchema + `,"Operations":[
			{"op":"Replace","path":"emails[type eq \"work\"].value","value":"b@example.com"},
			{"op":"Add","path":"name.givenName","value":"Benjamin"},
			{"op":"Replace","path":"` + enterpriseUser + `:department","value":"Sales"}]}`, 200, `"Sales"`},
		{`GET /Groups?excludedAttributes=members&filter=displayName eq "Crew"`, ``, 200, `"totalResults":0`},
		{`POST /Groups`, `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group",
			"http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"],"externalId":"8aa1","displayName":"Crew",
			"members":[],"meta":{"resourceType":"Group"}}`, 201, `"displayName":"Crew"`},
		{`PATCH /Groups/$team`, `{` + patchSchema + `,"Operations":[{"op":"Add","path":"members",
			"value":[{"$ref":null,"value":"$ben"}]}]}`, 204, ``},
		{`GET /Groups/$team?excludedAttributes=members`, ``, 200, `"externalId":"8aa1"`},
		{`PATCH /Groups/$team`, `{` + patchSchema + `,"Operations":[{"op":"Remove","path":"members",
			"value":[{"$ref":null,"value":"$ben"}]}]}`, 204, ``},
		{`PATCH /Groups/$team`, `{` + patchSchema + `,"Operations":[{"op":"Replace","path":"displayName","value":"Team"}]}`,
			204, ``},
		{`PATCH /Users/$ben`, `{` + patchSchema + `,"Operations":[{"op":"Replace","path":"active","value":"False"}]}`, 200,
			`"active":false`},
		{`PATCH /Users/$ben`, `{` + patchSchema + `,"Operations":[{"op":"Replace","path":"active","value":"True"}]}`, 200,
			`"active":true`},
		{`DELETE /Users/$ben`, ``, 204, ``},
		{`POST /Users`, `{` + coreUser + `,"externalId":"0f1e-ben","userName":"ben@example.com","active":true}`, 201, ``},
		{`DELETE /Groups/$team`, ``, 204, ``},
	},
	"Okta": {
		{`GET /ServiceProviderConfig`, ``, 200, `"patch":{"supported":true}`},
		{`GET /Users?startIndex=1&count=2`, ``, 200, `"itemsPerPage":0`},
		{`GET /Users?filter=userName eq "ben@example.com"&startIndex=1&count=100`, ``, 200, `"totalResults":0`},
		{`POST /Users`, `{` + coreUser + `,"userName":"ben@example.com","name":{"givenName":"Ben","familyName":"Example"},
			"emails":[{"primary":true,"value":"ben@example.com","type":"work"}],"displayName":"Ben Example","locale":"en-US",
			"externalId":"00u1","groups":[],"password":"1mz050nq","active":true}`, 201, `"id":"$ben"`},
		{`PUT /Users/$ben`, `{` + coreUser + `,"id":"$ben","userName":"ben@example.com","externalId":"00u1",
			"name":{"givenName":"Another","familyName":"Example"},"active":true,"meta":{"resourceType":"User"},"groups":[]}`,
			200, `"Another"`},
		{`POST /Groups`, `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group"],"displayName":"Crew",
			"members":[{"value":"$ben","display":"ben@example.com"}]}`, 201, `"value":"$ben"`},
		{`PATCH /Groups/$team`, `{` + patchSchema + `,"Operations":[{"op":"replace","value":{"id":"$team",
			"displayName":"Pushed"}}]}`, 204, ``},
		{`PATCH /Groups/$team`, `{` + patchSchema + `,"Operations":[{"op":"remove","path":"members[value eq \"$ben\"]"},
			{"op":"add","path":"members","value":[{"value":"$ben","display":"ben@example.com"}]}]}`, 204, ``},
		{`PUT /Groups/$team`, `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group"],"id":"$team",
			"displayName":"Pushed","members":[{"value":"$ben","display":"ben@example.com"}]}`, 200, `"value":"$ben"`},
		{`GET /Groups?startIndex=1&count=100`, ``, 200, `"resourceType":"Group"`},
		{`PATCH /Users/$ben`, `{` + patchSchema + `,"Operations":[{"op":"replace","value":{"active":false}}]}`, 200,
			`"active":false`},
		{`PUT /Users/$ben`, `{` + coreUser + `,"id":"$ben","userName":"ben@example.com","externalId":"00u1","active":true}`,
			200, `"active":true`},
		{`DELETE /Groups/$team`, ``, 204, ``},
	},
	"JumpCloud": {
		{`GET /Users?filter=userName eq "ben"&count=1`, ``, 200, `"totalResults":0`},
		{`POST /Users`, `{` + coreUser + `,"userName":"ben","externalId":"5f1","name":{"givenName":"Ben","familyName":"E"},
			"emails":[{"value":"ben@example.com","primary":true}],"active":true}`, 201, ``},
		{`PUT /Users/$ben`, `{` + coreUser + `,"userName":"ben","externalId":"5f1","emails":[{"value":"b@example.com",
			"primary":true}],"active":true}`, 200, `b@example.com`},
		{`POST /Groups`, `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group"],"displayName":"Crew"}`, 201, ``},
		{`PATCH /Groups/$team`, `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[{"op":"add",
			"path":"members","value":[{"value":"$ben"}]}]}`, 204, ``},
		{`PATCH /Groups/$team`, `{"Operations":[{"op":"remove","path":"members","value":[{"value":"$ben"}]}]}`, 204, ``},
		{`PUT /Users/$ben`, `{` + coreUser + `,"userName":"ben","externalId":"5f1","active":false}`, 200, `"active":false`},
	},
	"Google": {
		{`GET /Users?filter=userName eq "ben@example.com"`, ``, 200, `"totalResults":0`},
		{`POST /Users`, `{` + coreUser + `,"userName":"ben@example.com","externalId":104722333444555666777,
			"name":{"givenName":"Ben","familyName":"Example"},"photos":[{"value":"data:image/png;base64,` +
			strings.Repeat("A", 100_000) + `"}],"active":true}`, 201, `"externalId":"104722333444555666777"`},
		{`PUT /Users/$ben`, `{` + coreUser + `,"userName":"ben@example.com","externalId":"104722333444555666777",
			"title":"Pilot","active":true}`, 200, `"Pilot"`},
		{`PUT /Users/$ben`, `{` + coreUser + `,"userName":"ben@example.com","externalId":"104722333444555666777",
			"active":"False"}`, 200, `"active":false`},
	},
}

// TestReplay repeats the traffic of directories.
func TestReplay(t *testing.T) {
	for name, steps := range replays {
		t.Run(name, func(t *testing.T) {
			eachWorld(t, func(t *testing.T, w *world) {
				ids := map[string]string{}
				fill := func(text string) string {
					for name, id := range ids {
						text = strings.ReplaceAll(text, name, id)
					}
					return text
				}
				for _, s := range steps {
					got := w.send(fill(s.target), fill(s.body))
					kind, created := map[string]string{"POST /Users": "$ben", "POST /Groups": "$team"}[s.target], got.status == 201
					if id, _ := got.body["id"].(string); created && ids[kind] == "" {
						ids[kind] = id
					}
					if got.status != s.status || !strings.Contains(got.text, fill(s.part)) {
						t.Fatalf("%s %.300s: %d %.500s, want %d and %s", fill(s.target), s.body, got.status, got.text, s.status,
							fill(s.part))
					}
				}
				if found := drifts(t, w); found != "" {
					t.Errorf("counters differ: %s", found)
				}
			})
		})
	}
}
