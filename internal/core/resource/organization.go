package resource

// An AppliedChanges describes many changes that were made in one transaction.
type AppliedChanges struct {
	UID     UID    `json:"uid"` // group in which and below which all changes were made
	Changes int    `json:"changes"`
	Commit  string `json:"commit,omitempty"`  // version of the file that describes the changes
	By      string `json:"by,omitempty"`      // who approved the changes, as the caller has reported it
	Planned bool   `json:"planned,omitempty"` // whether the server had validated exactly these changes before
}
