"""Every posture of a UR5 for a pose, in closed form: an oracle with the link lengths of the URDF, which does not use the solver.

The axes of joints 2, 3 and 4 are parallel, so that a pose gives joint 1, then 5 and 6, and then two links in a plane remain. A pose
has up to 8 postures. See Hawkins, Analytic Inverse Kinematics for the Universal Robots UR-5/UR-10 Arms, 2013.
"""

import math
import xml.etree.ElementTree as ElementTree

import numpy as np


class Arm:
    def __init__(self, urdf, pose_at_zero: np.ndarray) -> None:
        joints = ElementTree.parse(urdf).getroot().findall("joint")
        at = {joint.get("name"): [float(number) for number in joint.find("origin").get("xyz").split()] for joint in joints}
        self.height = at["shoulder_pan_joint"][2]
        self.upper, self.fore = at["elbow_joint"][2], at["wrist_1_joint"][2]
        # Distance of the wrist from the plane of the shoulder's axis.
        self.side = at["shoulder_lift_joint"][1] + at["elbow_joint"][1] + at["wrist_2_joint"][1]
        self.wrist, self.tool = at["wrist_3_joint"][2], at["wrist_3_link-tool0_fixed_joint"][1]
        self.at_zero = matrix(pose_at_zero)

    def postures(self, pose: np.ndarray) -> np.ndarray:
        """Returns all rows of joints from -pi to pi whose pose is `pose`, `[k, 6]`."""
        return np.array(list(self._postures(pose))).reshape(-1, 6)

    def _postures(self, pose):
        rotation = matrix(pose) @ self.at_zero.T
        centre = pose[:3] - self.tool * rotation[:, 1] - [0, 0, self.height]
        reach = math.hypot(centre[0], centre[1])
        if reach < self.side:
            return
        heading, lead = math.atan2(centre[1], centre[0]), math.asin(self.side / reach)
        for q1 in (heading - lead, heading + lead - math.pi):
            cos, sin = math.cos(q1), math.sin(q1)
            back = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
            turned, (x, _, z) = back @ rotation, back @ centre
            for q5 in (math.acos(turned[1, 1]), -math.acos(turned[1, 1])):
                sign = math.copysign(1, math.sin(q5))
                q6 = math.atan2(-sign * turned[1, 2], -sign * turned[1, 0])
                # The sum of joints 2, 3 and 4.
                pitch = math.atan2(-sign * turned[2, 1], sign * turned[0, 1])
                dx, dz = x + self.wrist * math.sin(pitch), z + self.wrist * math.cos(pitch)
                cos = (dx * dx + dz * dz - self.upper**2 - self.fore**2) / (2 * self.upper * self.fore)
                for q3 in (math.acos(cos), -math.acos(cos)) if abs(cos) <= 1 else ():
                    q2 = math.atan2(-dz, dx) - math.atan2(self.fore * math.sin(q3), self.upper + self.fore * math.cos(q3))
                    yield [math.remainder(q, math.tau) for q in (q1, q2, q3, pitch - q2 - q3, q5, q6)]


def matrix(pose: np.ndarray) -> np.ndarray:
    """Returns the rotation matrix of a pose x y z qx qy qz qw."""
    x, y, z, w = pose[3:]
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
