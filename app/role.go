package app

// Role is what a process does.
type Role string

// The roles.
const (
	RoleProxy    Role = "proxy"
	RoleRobot    Role = "robot"
	RoleSender   Role = "sender"
	RoleReceipts Role = "receipts"
)

// Roles lists them in the order in which letters travel.
func Roles() []Role { return []Role{RoleProxy, RoleRobot, RoleSender, RoleReceipts} }
