package config

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A FirstOrganization is the organization that set-up creates, with its owner. An
// issuer authenticates the owner, or the owner has a local account.
type FirstOrganization struct {
	Name     string `json:"organization"`
	Issuer   string `json:"ownerIssuer"`
	Subject  string `json:"ownerSubject"`
	Email    string `json:"ownerEmail"`
	Person   string `json:"ownerName"`
	Password string `json:"ownerPassword"`
}

// First returns the organization that the settings name, or the zero value.
func (c Config) First() FirstOrganization {
	return FirstOrganization{Name: c.Organization, Issuer: c.OwnerIssuer, Subject: c.OwnerSubject, Email: c.OwnerEmail,
		Person: c.OwnerName}
}

// Owner returns the identity of the owner of o, without a UID.
func (o FirstOrganization) Owner() resource.Identity {
	return resource.Identity{
		Name:         resource.PersonName(o.Person, "owner"),
		DisplayName:  resource.PersonDisplayName(o.Person),
		Description:  "Set up this server",
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: o.Issuer, Subject: o.Subject}},
	}
}

// Violations returns the mistakes in o, by the names of settings. withPassword
// requires a password for an owner with an e-mail address.
func (o FirstOrganization) Violations(withPassword bool) []fault.Violation {
	var all []fault.Violation
	add := func(name, value, in string, err error) {
		if value == "" {
			all = append(all, fault.Violation{Subject: name, Description: "is required"})
			return
		}
		if err == nil {
			return
		}
		for _, v := range fault.From(err).Fields {
			if v.Subject == in {
				all = append(all, fault.Violation{Subject: name, Description: v.Description})
			}
		}
	}
	all = append(all, organizationViolations(o.Name)...)
	if o.Email != "" || o.Password != "" {
		a := resource.Account{Email: resource.NormalEmail(o.Email), Name: o.Person}.Validate()
		add("owner_email", o.Email, "email", a)
		if o.Person != "" {
			add("owner_name", o.Person, "name", a)
		}
		if withPassword {
			add("owner_password", o.Password, "", nil)
		}
		if o.Issuer != "" || o.Subject != "" {
			all = append(all, fault.Violation{
				Subject: "owner_email", Description: "cannot be combined with owner_issuer and owner_subject",
			})
		}
		return all
	}
	owner := o.Owner().Validate(time.Time{})
	add("owner_issuer", o.Issuer, "claim_match.issuer", owner)
	add("owner_subject", o.Subject, "claim_match.subject", owner)
	return all
}

// organizationViolations returns the mistakes in the name that a person typed for an
// organization.
func organizationViolations(typed string) (all []fault.Violation) {
	add := func(text string) { all = append(all, fault.Violation{Subject: "organization", Description: text}) }
	name, display := resource.Titled(typed)
	switch {
	case typed == "":
		add("is required")
		return all
	case name == "":
		add("needs a letter from a to z or a digit, because paths are made of it; the display name can be changed later")
		return all
	}
	if err := (resource.Group{Name: name, DisplayName: display}).Validate(); err != nil {
		for _, v := range fault.From(err).Fields {
			add(v.Description)
		}
	}
	return all
}
