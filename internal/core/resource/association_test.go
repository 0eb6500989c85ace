package resource_test

import (
	"errors"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestGitHubAccount checks the apps and installations that an association may name.
func TestGitHubAccount(t *testing.T) {
	many := make([]resource.GitHubInstallation, 1001)
	for i := range many {
		many[i].ID = int64(i + 1)
	}
	type installations = map[int64][]resource.GitHubInstallation
	tests := map[string]struct {
		installations installations
		err           error
	}{
		"an app":                              {installations{1: {{ID: 2, Name: "acme"}}}, nil},
		"an app without installations":        {installations{1: nil}, nil},
		"no app":                              {nil, nil},
		"app 0":                               {installations{0: {{ID: 2}}}, fault.InvalidArgument},
		"app 0 without installations":         {installations{0: nil}, fault.InvalidArgument},
		"a negative app":                      {installations{-1: {{ID: 2}}}, fault.InvalidArgument},
		"installation 0":                      {installations{1: {{}}}, fault.InvalidArgument},
		"a negative one after a positive one": {installations{1: {{ID: 2}, {ID: -2}}}, fault.InvalidArgument},
		"as many as possible":                 {installations{1: many[:1000]}, nil},
		"too many":                            {installations{1: many}, fault.InvalidArgument},
		"too many with an empty app":          {installations{1: many[:1000], 2: nil}, fault.InvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := resource.AccountAssociation{Name: "a", GitHub: &resource.GitHubAccount{Installations: tt.installations}}
			if err := a.Validate(); !errors.Is(err, tt.err) {
				t.Errorf("error = %v, want %v", err, tt.err)
			}
		})
	}
}
