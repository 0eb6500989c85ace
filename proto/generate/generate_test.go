package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGenIsWhatTheProtosSay(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stale.pb.go"), []byte("package stale"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "..", dir); err != nil {
		t.Fatal(err)
	}
	want, err := readTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readTree("../../gen")
	if err != nil {
		t.Fatal(err)
	}
	paths := func(files tree) []string { return slices.Sorted(maps.Keys(files)) }
	if diff := cmp.Diff(paths(want), paths(got)); diff != "" {
		t.Errorf("files of gen (-generated +found):\n%s", diff)
	}
	for path := range want {
		if !bytes.Equal(want[path], got[path]) {
			t.Errorf("gen/%s is out of date: run go run ./proto/generate", path)
		}
	}
}

// openapiJSON returns the document in gen, as text and decoded.
func openapiJSON(t *testing.T) (string, openAPI) {
	t.Helper()
	text, err := os.ReadFile("../../gen/openapi/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc openAPI
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return string(text), doc
}

func TestDocumentIsWhole(t *testing.T) {
	text, doc := openapiJSON(t)
	for _, ref := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllStringSubmatch(text, -1) {
		_, isSchema := doc.Components.Schemas[strings.TrimPrefix(ref[1], "#/components/schemas/")]
		_, isResponse := doc.Components.Responses[strings.TrimPrefix(ref[1], "#/components/responses/")]
		if !isSchema && !isResponse {
			t.Errorf("reference to %s, which does not exist", ref[1])
		}
	}
	for name, s := range doc.Components.Schemas {
		if s["type"] == "object" && s["additionalProperties"] != false {
			t.Errorf("schema %s takes any property", name)
		}
	}
}

func TestDocumentedOperations(t *testing.T) {
	_, doc := openapiJSON(t)
	queryName := regexp.MustCompile(`^([a-z_]+(\.[a-z_]+)?|updateMask)$`)
	var ids []string
	for path, operations := range doc.Paths {
		for method, op := range operations {
			ids = append(ids, op.OperationID)
			var inPath string
			for _, p := range op.Parameters {
				if p.In == "path" {
					inPath += "{" + p.Name + "}"
				} else if !queryName.MatchString(p.Name) {
					t.Errorf("%s: query parameter %s", op.OperationID, p.Name)
				}
			}
			if want := strings.Join(regexp.MustCompile(`\{.*?\}`).FindAllString(path, -1), ""); inPath != want {
				t.Errorf("%s: path %s has parameters %q", op.OperationID, path, inPath)
			}
			if open := op.Security != nil; open != strings.HasPrefix(path, "/ping/") {
				t.Errorf("%s: callable without a token = %v", op.OperationID, open)
			}
			if empty := op.Responses["200"].Content == nil; empty != (method == "delete") {
				t.Errorf("%s: answers with nothing = %v", op.OperationID, empty)
			}
			failure := op.Responses["default"].Content["application/json"].Schema["$ref"]
			if failure != "#/components/schemas/"+statusName {
				t.Errorf("%s: fails with %v", op.OperationID, failure)
			}
		}
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(ids))); len(unique) != len(ids) || len(ids) == 0 {
		t.Errorf("%d operations have %d names", len(ids), len(unique))
	}
}

func TestDocumentRequiresOnCreate(t *testing.T) {
	_, doc := openapiJSON(t)
	groups := doc.Paths["/iam/v2beta1/groups/{uid}"]
	required := func(method string) any {
		return groups[method].RequestBody.Content["application/json"].Schema["required"]
	}
	if diff := cmp.Diff([]any{"name"}, required("post")); diff != "" {
		t.Errorf("required of a new group (-want +got):\n%s", diff)
	}
	if got := required("patch"); got != nil {
		t.Errorf("required of a changed group: %v", got)
	}
	if got := doc.Components.Schemas["holdfast.iam.v2beta1.Group"]["required"]; got != nil {
		t.Errorf("required of any group: %v", got)
	}
}

func TestDocumentHasEveryService(t *testing.T) {
	_, doc := openapiJSON(t)
	got := map[string]int{} // number of operations
	for _, operations := range doc.Paths {
		for _, op := range operations {
			service := op.OperationID[:strings.LastIndexByte(strings.TrimSuffix(op.OperationID, "_1"), '_')]
			got[service]++
		}
	}
	want := map[string]int{
		"AccessRequestsService":            9,
		"AccessService":                    10,
		"AccessHistoryService":             3,
		"AccessUseService":                 1,
		"AccountAssociationsService":       6,
		"AdvisoriesService":                2,
		"AdvisoryFeedsService":             6,
		"AdvisoryReadingService":           2,
		"AdvisoryWritingService":           5,
		"AuditService":                     2,
		"Auth":                             4,
		"BudgetsService":                   4,
		"FindingsService":                  5,
		"BlastService":                     2,
		"ComparisonService":                1,
		"InventoryService":                 4,
		"ExceptionsService":                5,
		"GroupFindingsService":             7,
		"RulesService":                     6,
		"AdmissionService":                 1,
		"SlasService":                      3,
		"ReportsService":                   4,
		"VexService":                       2,
		"DeliveriesService":                5,
		"DirectoriesService":               2,
		"ExploitedService":                 3,
		"ExternalGroupRoleMappingsService": 5,
		"FederationService":                4,
		"GroupInvitesService":              5,
		"GroupsService":                    8,
		"IdentitiesService":                7,
		"IdentityProvidersService":         9,
		"ImagesService":                    2,
		"OCIService":                       9,
		"OperatorService":                  1,
		"PingService":                      1,
		"ReposService":                     7,
		"ReplicationsService":              8,
		"CopyService":                      1,
		"RetentionService":                 5,
		"SignersService":                   5,
		"SyncsService":                     3,
		"RoleBindingsService":              6,
		"RolesService":                     5,
		"SecurityTokenService":             3,
		"OrganizationService":              2,
		"SimulationService":                1,
		"SubscriptionsService":             4,
		"TagsService":                      4,
		"TrashService":                     5,
		"UpstreamsService":                 5,
		"V1_Advisories":                    7,
		"SignInService":                    10,
		"V1_EventIdentities":               2,
		"V1_ExternalGroupRoleMappings":     5,
		"V1_GroupAccountAssociations":      5,
		"V1_GroupInvites":                  3,
		"V1_Groups":                        7,
		"V1_Identities":                    5,
		"V1_IdentityProviders":             8,
		"V1_PingService":                   1,
		"V1_Registry":                      34,
		"V1_RoleBindings":                  5,
		"V1_Roles":                         4,
		"V1_Subscriptions":                 3,
		"V1_Vulnerabilities":               4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations by service (-want +got):\n%s", diff)
	}
}

// TestDocumentOffersValidateOnly: every change of IAM can be validated without making the
// change. validate_only is in the query, or in the body if the body is the whole request.
func TestDocumentOffersValidateOnly(t *testing.T) {
	_, doc := openapiJSON(t)
	custom := `PushInventory|ImportVex|ApproveException|RestoreTrashEntry|EmptyTrash|RunRetention|RunSync|CopyImages|` +
		`RunReplication|ApproveAccessRequest|DenyAccessRequest|HandBackAccessRequest|CreateReportSubscription|` +
		`ApplyOrganization`
	change := regexp.MustCompile(
		`^[A-Za-z]+_(Create|Update|Delete|BatchCreate|BatchDelete|SetRetention|SetSla|` + custom + `)`)
	whole := regexp.MustCompile(`:(batchCreate|batchDelete|updateIdentityMetadata)$|/accountLinks/|_(` + custom + `)$`)
	for path, operations := range doc.Paths {
		for _, op := range operations {
			inQuery := slices.ContainsFunc(op.Parameters, func(p *parameter) bool {
				return p.In == "query" && p.Name == "validate_only" && p.Schema["type"] == "boolean" && p.Description != ""
			})
			inBody := false
			if op.RequestBody != nil {
				properties, _ := op.RequestBody.Content["application/json"].Schema["properties"].(map[string]any)
				inBody = properties["validateOnly"] != nil
			}
			changes := change.MatchString(op.OperationID)
			if want := changes && !whole.MatchString(path) && !whole.MatchString(op.OperationID); inQuery != want {
				t.Errorf("%s: validate_only in the query = %v", op.OperationID, inQuery)
			}
			if want := changes && (whole.MatchString(path) || whole.MatchString(op.OperationID)); inBody != want {
				t.Errorf("%s: validateOnly in the body = %v", op.OperationID, inBody)
			}
		}
	}
}

// TestDocumentedDirections: fields that answers never have, and fields that requests
// cannot set, are marked in the document.
func TestDocumentedDirections(t *testing.T) {
	_, doc := openapiJSON(t)
	tests := map[string]struct{ schema, property, key string }{
		"a secret is only written":          {"iam.v2beta1.IdentityProvider.OIDC", "clientSecret", "writeOnly"},
		"a lifetime is only written":        {"iam.v2beta1.GroupInvite", "ttl", "writeOnly"},
		"a code is only read":               {"iam.v2beta1.GroupInvite", "code", "readOnly"},
		"provisioning is only read":         {"iam.v2beta1.IdentityProvider", "scim", "readOnly"},
		"a mapping's provider is its place": {"iam.v2beta1.ExternalGroupRoleMapping", "identityProviderUid", "readOnly"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			properties, _ := doc.Components.Schemas["holdfast."+tt.schema]["properties"].(map[string]any)
			property, _ := properties[tt.property].(map[string]any)
			if property[tt.key] != true {
				t.Errorf("%s of %s: %v", tt.property, tt.schema, property)
			}
		})
	}
}

func TestDocumentRefuses(t *testing.T) {
	tests := map[string]tree{
		"a key it would lose": {
			"a": []byte(`{"openapi": "3.1.0", "webhooks": {}}`),
		},
		"two operations at one place": {
			"a": []byte(`{"paths": {"/x/{parent}": {"get": {"operationId": "A", "responses": {}}}}}`),
			"b": []byte(`{"paths": {"/x/{uid}": {"get": {"operationId": "B", "responses": {}}}}}`),
		},
	}
	for name, parts := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := document(parts, nil); err == nil {
				t.Error("no error")
			}
		})
	}
}
