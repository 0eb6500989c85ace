package resource

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An AccountAssociation associates a group with accounts at cloud providers. A group has at
// most one, which has the UID of the group.
type AccountAssociation struct {
	UID             UID            `json:"uid"`
	Name            string         `json:"name"`
	Description     string         `json:"description,omitempty"`
	Amazon          *AmazonAccount `json:"amazon,omitempty"`
	Google          *GoogleProject `json:"google,omitempty"`
	Azure           *AzureTenant   `json:"azure,omitempty"`
	GitHub          *GitHubAccount `json:"github,omitempty"`
	ServiceBindings map[string]UID `json:"serviceBindings,omitempty"` // service principal → identity
	HasBindings     bool           `json:"hasBindings,omitempty"`     // whether the bindings are set; they may be empty
	CreateTime      time.Time      `json:"createTime"`
	UpdateTime      time.Time      `json:"updateTime"`
}

// An AmazonAccount is an AWS account.
type AmazonAccount struct {
	Account string `json:"account"`
}

// A GoogleProject is a Google Cloud project.
type GoogleProject struct {
	ProjectID     string `json:"projectId"`
	ProjectNumber string `json:"projectNumber"`
}

// An AzureTenant is an Azure tenant and the applications in it.
type AzureTenant struct {
	TenantID  string            `json:"tenantId"`
	ClientIDs map[string]string `json:"clientIds,omitempty"`
}

// A GitHubAccount contains the installations of GitHub apps, by the ID of the app.
type GitHubAccount struct {
	Installations map[int64][]GitHubInstallation `json:"installations,omitempty"`
}

// A GitHubInstallation is one installation of an app. Its name is only for display.
type GitHubInstallation struct {
	ID   int64  `json:"installationId"`
	Name string `json:"name,omitempty"`
}

const (
	maxBindings      = 32
	maxInstallations = 1000
)

var azureID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// Validate reports every field that a caller must fix.
func (a AccountAssociation) Validate() error {
	var p Problems
	p.Name(a.Name)
	p.Description(a.Description)
	if a.Amazon == nil && a.Google == nil && a.Azure == nil && a.GitHub == nil && !a.HasBindings {
		p.Add("account_association", "needs at least one account")
	}
	if a.Amazon != nil {
		p.Matches("amazon.account", a.Amazon.Account, awsAccount)
	}
	if a.Google != nil {
		p.RequiredText("google.project_id", a.Google.ProjectID)
		p.RequiredText("google.project_number", a.Google.ProjectNumber)
	}
	a.Azure.validate(&p)
	a.GitHub.validate(&p)
	p.AtMost("service_bindings", len(a.ServiceBindings), maxBindings, "bindings")
	for _, name := range slices.Sorted(maps.Keys(a.ServiceBindings)) {
		switch identity := a.ServiceBindings[name]; {
		case len(name) > MaxPathName:
			p.Add("service_bindings", "a name must have at most 128 characters")
		case !WellFormed(string(identity)), identity.Parent() != a.UID && a.UID != "":
			p.Add("service_bindings", name+": the identity must be directly in the group")
		}
	}
	return p.Err()
}

func (z *AzureTenant) validate(p *Problems) {
	if z == nil {
		return
	}
	p.Matches("azure.tenant_id", z.TenantID, azureID)
	p.AtMost("azure.client_ids", len(z.ClientIDs), maxBindings, "applications")
	for _, name := range slices.Sorted(maps.Keys(z.ClientIDs)) {
		p.Text("azure.client_ids", name)
		p.Matches("azure.client_ids", z.ClientIDs[name], azureID)
	}
}

func (g *GitHubAccount) validate(p *Problems) {
	if g == nil {
		return
	}
	n := 0
	for _, app := range slices.Sorted(maps.Keys(g.Installations)) {
		installations := g.Installations[app]
		n += max(1, len(installations)) // an app without installations counts as one
		for _, i := range installations {
			p.Text("github.app_installations", i.Name)
		}
		if app <= 0 || slices.ContainsFunc(installations, func(i GitHubInstallation) bool { return i.ID <= 0 }) {
			p.Add("github.app_installations", "app "+strconv.FormatInt(app, 10)+": ids must be positive")
		}
	}
	p.AtMost("github.app_installations", n, maxInstallations, "installations")
}

// servicePrincipals contains the names of the service principals, by their number.
var servicePrincipals = [...]string{
	"", "COSIGNED", "INGESTER", "CATALOG_SYNCER", "APKO_BUILDER", "ENTITLEMENT_SYNCER", "TENANT_SCANNER",
	"SEDIMENTOLOGY", "SKILLUP", "MATERIALIZER", "MICROFLOW", "GUARDENER", "MICROVM", "SKILLS",
}

// ParseServicePrincipal returns the number of a service principal, and whether there is
// one with the name. The name may have the prefix of the API's enum, and its case is
// ignored.
func ParseServicePrincipal(name string) (int32, bool) {
	name = strings.TrimPrefix(strings.ToUpper(name), "SERVICE_PRINCIPAL_")
	i := slices.Index(servicePrincipals[:], name)
	return int32(i), i > 0
}

// A ProviderType is a cloud that an association can be checked against. Its values are the same as in the API.
type ProviderType int32

// These are the clouds that can be checked.
const (
	ProviderGoogle ProviderType = 1
	ProviderAmazon ProviderType = 2
	ProviderAzure  ProviderType = 3
)

// A Readiness is the result of a check of an association.
type Readiness struct {
	Ready   bool
	Reason  string // one-word reason, for programs
	Message string
}
